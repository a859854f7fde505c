#include "nn/context.hpp"

#include <cmath>
#include <string>

#include "base/error.hpp"

namespace lockstep::nn {

namespace {

// cos and sin of position x theta^(-2 i / D), computed in fp64.
std::pair<at::Tensor, at::Tensor> rope_tables(int64_t sequence, int64_t head_dim, double theta,
                                              at::ScalarType type) {
  const int64_t half = head_dim / 2;
  at::Tensor cos = at::empty({sequence, half}, at::kDouble), sin = at::empty({sequence, half}, at::kDouble);
  auto* const c = cos.data_ptr<double>();
  auto* const s = sin.data_ptr<double>();
  for (int64_t position = 0; position < sequence; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double angle = static_cast<double>(position) * frequency;
      c[position * half + i] = std::cos(angle);
      s[position * half + i] = std::sin(angle);
    }
  }
  return {cos.to(type), sin.to(type)};
}

comm::Communicator* checked_group(const char* axis, const char* key, int64_t ranks,
                                  comm::Communicator* group) {
  if (ranks == 1) return nullptr;
  if (group == nullptr || group->size() != ranks) {
    throw UsageError(std::string("the ") + axis + "-parallel group has " +
                     std::to_string(group == nullptr ? 1 : group->size()) +
                     " ranks, but the shape is cut for " + key + " = " + std::to_string(ranks));
  }
  return group;
}

void check_cuts(const model::ShardShape& s) {
  if (s.head_dim % 2 != 0) {
    throw UsageError(
        "a head has " + std::to_string(s.head_dim) +
        " elements, but rotary embedding turns pairs; choose heads so that hidden / heads is even");
  }
  if (s.cp > 1 && s.sequence % (2 * s.cp) != 0) {
    throw UsageError("context parallel cuts a sequence of " + std::to_string(s.sequence) +
                     " tokens into 2 x cp = " + std::to_string(2 * s.cp) +
                     " equal chunks; choose a sequence that is a multiple of that");
  }
  if (s.sequence_parallel && s.tokens_sharded * s.tp != s.tokens) {
    throw UsageError("sequence parallel cuts the " + std::to_string(s.tokens) +
                     " tokens of a micro-batch into tp = " + std::to_string(s.tp) +
                     " equal parts; choose a sequence that is a multiple of tp");
  }
}

}  // namespace

at::Tensor Context::empty(at::IntArrayRef sizes) const { return at::empty(sizes, dtype); }
at::Tensor Context::empty_statistic(at::IntArrayRef sizes) const { return at::empty(sizes, statistic_dtype); }

at::ScalarType scalar_type(config::Dtype dtype) {
  switch (dtype) {
    case config::Dtype::bf16:
      return at::kBFloat16;
    case config::Dtype::fp32:
      return at::kFloat;
    case config::Dtype::fp64:
      return at::kDouble;
  }
  throw UsageError("unknown dtype");
}

at::ScalarType gradient_scalar_type(config::Dtype dtype) {
  return dtype == config::Dtype::fp64 ? at::kDouble : at::kFloat;
}

comm::DataType data_type(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return comm::DataType::bf16;
    case at::kFloat:
      return comm::DataType::f32;
    case at::kDouble:
      return comm::DataType::f64;
    case at::kLong:
      return comm::DataType::i64;
    case at::kInt:
      return comm::DataType::i32;
    case at::kByte:
      return comm::DataType::u8;
    default:
      throw UsageError(std::string("tensors of type ") + at::toString(type) +
                       " are not communicated; use bf16, fp32, fp64, int64, int32 or uint8");
  }
}

Context make_context(const config::RunFile& run, comm::Communicator* tp, comm::Communicator* cp, OpLog* log) {
  return make_context(model::shard_shape(run), run.train.dtype, run.model.rope_theta, run.model.norm_eps, tp,
                      cp, log);
}

Context make_context(const model::ShardShape& shape, config::Dtype dtype, double rope_theta, double norm_eps,
                     comm::Communicator* tp, comm::Communicator* cp, OpLog* log) {
  check_cuts(shape);
  Context ctx;
  ctx.shape = shape;
  ctx.dtype = scalar_type(dtype);
  ctx.gradient_dtype = ctx.statistic_dtype = gradient_scalar_type(dtype);
  ctx.tp = checked_group("tensor", "tp", shape.tp, tp);
  ctx.cp = checked_group("context", "cp", shape.cp, cp);
  ctx.log = log;
  ctx.norm_eps = norm_eps;
  ctx.places = token_places(shape, ctx.cp_rank());
  std::tie(ctx.rope_cos, ctx.rope_sin) =
      rope_tables(shape.sequence, shape.head_dim, rope_theta, ctx.statistic_dtype);
  return ctx;
}

}  // namespace lockstep::nn
