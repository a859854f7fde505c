// Small runs that several tests simulate.
#pragma once

#include "sim/drawn_layouts.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::sim::test {

inline config::RunFile small_run(int64_t tp, int64_t pp, int64_t dp, int64_t virtual_stages,
                                 int64_t micro_batches) {
  config::RunFile run = tests::sample_run(tp, pp, dp, virtual_stages, micro_batches);
  run.model.hidden = 2048;
  run.model.ffn = 8192;
  run.train.sequence = 1024;
  run.cluster = tests::small_cluster(8, 64);
  return run;
}

inline StepOptions no_jitter() {
  StepOptions options;
  options.jitter = false;
  return options;
}

inline StepResult simulate(const config::RunFile& run, const StepOptions& options) {
  const parallel::Layout layout(run);
  return simulate_step(layout, parallel::build_step_programs(layout), options);
}

// Nearly equal stages: wide layers, hardly a vocabulary.
inline config::RunFile even_run(int64_t pp, int64_t virtual_stages, int64_t micro_batches) {
  config::RunFile run = small_run(1, pp, 1, virtual_stages, micro_batches);
  run.model.layers = pp * virtual_stages;
  run.model.hidden = 16384;
  run.model.ffn = 65536;
  run.model.vocab = 1;
  return run;
}

}  // namespace lockstep::sim::test
