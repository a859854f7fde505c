#include "config/notes.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "config/schema.hpp"

namespace lockstep::config {
namespace {

class Notes {
 public:
  Notes(const Layers& layers, RunFile& run) : layers_(layers), run_(run) {}

  void add_all() {
    if (run_.simulate.jitter) {
      note_halves();
    } else {
      note_without_jitter();
    }
    for (const std::string kernel : {"gemm", "attention", "memory"}) note_share(kernel);
    note_dtype();
  }

 private:
  // Set, and to something else than would hold anyway.
  bool given(const std::string& path) const {
    if (!layers_.has(path)) return false;
    const Key& key = *find_key(path);
    return to_literal(read_key(key, run_)) != to_literal(read_key(key, RunFile{}));
  }

  std::string shown(const std::string& path) const {
    return fmt::format("{} = {} ({})", path, shortened(to_literal(read_key(*find_key(path), run_))),
                       layers_.at(path).where);
  }

  void note(std::string text) { run_.origin.notes.push_back(std::move(text)); }

  void note_without_jitter() {
    std::string names;
    for (const char* key :
         {"op_jitter", "rank_jitter", "tail_probability", "tail_factor", "garbage_collection_seconds",
          "garbage_collection_interval", "retransmit_probability", "retransmit_seconds", "throttled_nodes",
          "throttle_factor"}) {
      const std::string path = std::string("simulate.") + key;
      if (given(path)) names += (names.empty() ? "" : ", ") + path;
    }
    if (!names.empty()) note(fmt::format("without effect, for simulate.jitter = false: {}", names));
  }

  // Of two keys that do nothing one without the other.
  void note_halves() {
    const SimulateConfig& s = run_.simulate;
    const auto check = [&](const char* key, bool other_is_on, const char* other) {
      const std::string path = std::string("simulate.") + key;
      if (given(path) && !other_is_on) {
        note(fmt::format("without effect: {}; it needs simulate.{}", shown(path), other));
      }
    };
    check("throttled_nodes", s.throttle_factor > 1, "throttle_factor above 1");
    check("throttle_factor", s.throttled_nodes > 0, "throttled_nodes above 0");
    check("retransmit_probability", s.retransmit_seconds > 0, "retransmit_seconds above 0");
    check("retransmit_seconds", s.retransmit_probability > 0, "retransmit_probability above 0");
    check("garbage_collection_interval", s.garbage_collection_seconds > 0,
          "garbage_collection_seconds above 0");
    check("tail_factor", s.tail_probability > 0, "tail_probability above 0");
  }

  // A curve from below such a share was dropped when the layers were read; `calibrate` writes the curve's end
  // as its share.
  void note_share(const std::string& kernel) {
    const std::string share = "cluster." + kernel + "_efficiency", curve = "cluster." + kernel + "_curve";
    if (!layers_.has(share) || !layers_.has(curve)) return;
    const Rank rank = layers_.rank(share);
    const bool by_user = rank == Rank::cluster_file || rank == Rank::file ||
                         rank == Rank::flag_cluster_file || rank == Rank::flag;
    if (!by_user || rank != layers_.rank(curve)) return;
    const Curve& points = kernel == "gemm"        ? run_.cluster.gemm_curve
                          : kernel == "attention" ? run_.cluster.attention_curve
                                                  : run_.cluster.memory_curve;
    const double value = std::get<double>(read_key(*find_key(share), run_));
    if (points.empty() || points.back().value == value) return;
    note(fmt::format("without effect: {}; {} stands beside it and takes its place", shown(share), curve));
  }

  void note_dtype() {
    const std::string measured = "cluster.measured_dtype", curve = "cluster.gemm_curve";
    const std::string& dtype = run_.cluster.measured_dtype;
    if (dtype.empty() || dtype == to_string(run_.train.dtype) || run_.cluster.gemm_curve.empty()) return;
    if (!layers_.has(measured) || !layers_.has(curve) || layers_.rank(measured) != layers_.rank(curve))
      return;
    note(fmt::format(
        "the kernels' efficiency was measured in {} ({}), and this run computes in {}: measure it "
        "with `lockstep calibrate --dtype {}`",
        dtype, layers_.at(measured).where, to_string(run_.train.dtype), to_string(run_.train.dtype)));
  }

  const Layers& layers_;
  RunFile& run_;
};

}  // namespace

void add_notes(const Layers& layers, RunFile& run) { Notes(layers, run).add_all(); }

}  // namespace lockstep::config
