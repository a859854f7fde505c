// The mesh of ranks. Axes from inner to outer: tp, cp, pp, dp, unless parallel.rank_order says otherwise; so
// rank = tp + TP (cp + CP (pp + PP dp)).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "config/run_file.hpp"
#include "model/op.hpp"

namespace lockstep::parallel {

using model::Axis;

struct Coordinates {
  int tp = 0;
  int cp = 0;
  int pp = 0;
  int dp = 0;
  bool operator==(const Coordinates&) const = default;
};

class Mesh {
 public:
  // kv_copies: ranks of tp that hold the same key and value heads. rank_order: as in the run file.
  Mesh(int tp, int cp, int pp, int dp, int kv_copies = 1, std::string_view rank_order = "tp-cp-pp-dp");
  explicit Mesh(const config::RunFile& run);

  int size() const { return tp_ * cp_ * pp_ * dp_; }
  int size(Axis axis) const;
  int rank(const Coordinates& c) const {
    return c.tp * strides_[0] + c.cp * strides_[1] + c.pp * strides_[2] + c.dp * strides_[3];
  }
  Coordinates coordinates(int rank) const;
  // Global ranks of the group along `axis` that `rank` is in, by their place along it: ascending, but for
  // dp_cp where it has cp inside dp and the mesh dp inside cp. On pp_ends a rank of a middle stage is alone.
  std::vector<int> group(Axis axis, int rank) const;
  // Distance in global rank between neighbours along `axis`; of dp_cp, whose ranks are not evenly spaced when
  // there are several stages, the distance on its inner axis cp.
  int stride(Axis axis) const;

 private:
  int tp_, cp_, pp_, dp_, kv_copies_;
  std::array<int, 4> strides_{};  // of tp, cp, pp, dp
};

}  // namespace lockstep::parallel
