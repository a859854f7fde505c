// The mesh of ranks. Axes from inner to outer: tp, cp, pp, dp; rank = tp + TP (cp + CP (pp + PP dp)).
#pragma once

#include <cstdint>
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
  // kv_copies: ranks of tp that hold the same key and value heads.
  Mesh(int tp, int cp, int pp, int dp, int kv_copies = 1)
      : tp_(tp), cp_(cp), pp_(pp), dp_(dp), kv_copies_(kv_copies) {}
  explicit Mesh(const config::RunFile& run);

  int size() const { return tp_ * cp_ * pp_ * dp_; }
  int size(Axis axis) const;
  int rank(const Coordinates& c) const { return c.tp + tp_ * (c.cp + cp_ * (c.pp + pp_ * c.dp)); }
  Coordinates coordinates(int rank) const;
  // Global ranks of the group along `axis` that `rank` is in, ascending. On pp_ends a rank of a middle stage
  // is alone.
  std::vector<int> group(Axis axis, int rank) const;
  // Distance in global rank between neighbours along `axis`; of dp_cp, whose ranks are not evenly spaced when
  // there are several stages, the distance on its inner axis cp.
  int stride(Axis axis) const;

 private:
  int tp_, cp_, pp_, dp_, kv_copies_;
};

}  // namespace lockstep::parallel
