#include "model/shape.hpp"

namespace lockstep::model {

int64_t element_bytes(config::Dtype dtype) {
  switch (dtype) {
    case config::Dtype::bf16:
      return 2;
    case config::Dtype::fp32:
      return 4;
    case config::Dtype::fp64:
      return 8;
  }
  return 0;
}

int64_t gradient_bytes(config::Dtype dtype, config::GradientDtype kind) {
  if (kind == config::GradientDtype::compute) return element_bytes(dtype);
  return dtype == config::Dtype::fp64 ? 8 : 4;
}

ShardShape shard_shape(const config::RunFile& run) {
  const config::ModelConfig& m = run.model;
  const int64_t tp = run.parallel.tp;
  ShardShape s;
  s.sequence = run.train.sequence;
  s.cp = run.parallel.cp;
  s.tokens = run.parallel.micro_batch * s.sequence / s.cp;
  s.sequence_parallel = run.parallel.sequence_parallel && tp > 1;
  s.keep_gathered = s.sequence_parallel && run.parallel.gathered_input == config::GatheredInput::keep;
  s.tokens_sharded = s.sequence_parallel ? s.tokens / tp : s.tokens;
  s.hidden = m.hidden;
  s.heads = m.heads / tp;
  s.kv_heads = std::max<int64_t>(m.kv_heads / tp, 1);
  s.kv_copies = std::max<int64_t>(tp / m.kv_heads, 1);
  s.head_dim = m.head_dim();
  s.ffn = m.ffn / tp;
  s.vocab = (m.vocab + tp - 1) / tp;
  s.model_vocab = m.vocab;
  s.tp = tp;
  s.element_bytes = element_bytes(run.train.dtype);
  s.gradient_bytes = gradient_bytes(run.train.dtype, run.software.gradient_dtype);
  s.statistic_bytes = gradient_bytes(run.train.dtype);
  s.state_bytes = s.statistic_bytes;
  s.gpt = m.architecture == config::Architecture::gpt;
  s.scores = run.software.attention == config::AttentionKernel::scores;
  s.dropout = run.software.dropout && s.gpt;
  s.cross_entropy = run.software.cross_entropy;
  s.recompute_early_stop = run.software.recompute_early_stop;
  s.tensor_parallel_copies = run.software.tensor_parallel_copies;
  s.elementwise_traffic = run.software.elementwise_traffic;
  return s;
}

}  // namespace lockstep::model
