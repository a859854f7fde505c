// What the host of a rank needs for a pass, counted over its ops again: the pass ends no earlier.
#pragma once

#include "config/run_file.hpp"
#include "sim/reference_rank.hpp"

namespace lockstep::tests {

inline double host_seconds_of(const config::RunFile& run, const Rank& r, const Action& a) {
  using Kind = parallel::ActionKind;
  const config::SoftwareConfig& s = run.software;
  double share = 0;
  if (a.kind == Kind::forward || a.kind == Kind::backward) share = 1.0 / 2;
  if (a.kind == Kind::backward_input || a.kind == Kind::backward_weight) share = 1.0 / 4;
  if (share == 0) return 0;
  int64_t launches = 0;
  for (const FlatOp& f : r.ops) launches += f.action == &a && !f.none ? f.op.launches : 0;
  const bool skewed = 2 * run.parallel.tp > run.cluster.gpus_per_node;
  const double chunks = static_cast<double>(run.parallel.pp * run.parallel.virtual_stages);
  return static_cast<double>(launches) * s.host_seconds_per_launch * (skewed ? 1 + s.host_skew : 1) +
         s.host_seconds_per_micro_batch * share / chunks;
}

}  // namespace lockstep::tests
