// Run files over everything that a step program depends on, drawn at random.
#pragma once

#include <random>
#include <sstream>
#include <string>

#include "sample_run.hpp"

namespace lockstep::tests {

inline config::RunFile draw_run(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto kind = static_cast<config::ScheduleKind>(pick(0, 3));
  const bool interleaved = kind == config::ScheduleKind::interleaved;
  config::RunFile run = sample_run(1 << pick(0, 3), pick(1, 6), pick(1, 3), interleaved ? pick(1, 4) : 1, 1);
  config::ParallelConfig& p = run.parallel;
  p.schedule = kind;
  p.cp = pick(1, 3);
  p.zero = pick(0, 3);
  p.replicas = p.dp + pick(0, 3);
  p.reshard_after_forward = pick(0, 1) == 1;
  if (p.zero >= 2 && pick(0, 1) == 1) p.gradient_scatter = config::GradientScatter::micro_batch;
  p.sequence_parallel = pick(0, 2) > 0;
  p.layer_split = config::LayerSplit::cost;
  run.model.layers = pick(1, 9);
  run.model.kv_heads = 1 << pick(0, 3);
  run.model.tie_embeddings = (p.pp > 1 || p.virtual_stages == 1) && pick(0, 2) == 0;
  run.data.document_mask = pick(0, 1) == 1;
  run.train.global_batch = p.replicas * pick(1, 2 * p.pp + 2);
  return run;
}

inline std::string describe(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  std::ostringstream out;
  out << "tp " << p.tp << " cp " << p.cp << " pp " << p.pp << " dp " << p.dp << " replicas " << p.replicas
      << " zero " << p.zero << " chunks " << p.virtual_stages << " " << config::to_string(p.schedule)
      << " scatter " << config::to_string(p.gradient_scatter) << " micro-batches " << run.micro_batches()
      << (run.model.tie_embeddings ? " tied" : "") << (p.reshard_after_forward ? " reshard" : "");
  return out.str();
}

}  // namespace lockstep::tests
