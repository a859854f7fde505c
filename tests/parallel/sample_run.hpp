// Run files for tests, filled by hand so that these tests do not depend on the reader of run files.
#pragma once

#include "config/run_file.hpp"

namespace lockstep::tests {

inline config::RunFile sample_run(int64_t tp, int64_t pp, int64_t dp, int64_t virtual_stages,
                                  int64_t micro_batches) {
  config::RunFile run;
  run.name = "sample";
  run.model.layers = 8;
  run.model.hidden = 64;
  run.model.ffn = 96;
  run.model.heads = 8;
  run.model.kv_heads = 4;
  run.model.vocab = 256;
  run.parallel.tp = tp;
  run.parallel.pp = pp;
  run.parallel.dp = dp;
  run.parallel.virtual_stages = virtual_stages;
  run.parallel.schedule =
      virtual_stages > 1 ? config::ScheduleKind::interleaved : config::ScheduleKind::one_f_one_b;
  run.train.sequence = 16;
  run.train.global_batch = dp * micro_batches;
  return run;
}

inline config::RunFile llama3_405b() {
  config::RunFile run = sample_run(8, 16, 128, 8, 16);
  run.model.layers = 126;
  run.model.hidden = 16384;
  run.model.ffn = 53248;
  run.model.heads = 128;
  run.model.kv_heads = 8;
  run.model.vocab = 128256;
  run.parallel.first_stage_less_layers = 1;
  run.parallel.last_stage_less_layers = 1;
  run.train.sequence = 8192;
  return run;
}

}  // namespace lockstep::tests
