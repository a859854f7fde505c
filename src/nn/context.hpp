// What every layer needs to know about the run, one object a worker (and micro-batch shape).
#pragma once

#include <ATen/ATen.h>

#include "comm/communicator.hpp"
#include "config/run_file.hpp"
#include "model/shape.hpp"
#include "nn/op_log.hpp"
#include "nn/token_places.hpp"

namespace lockstep::nn {

struct Context {
  model::ShardShape shape;
  at::ScalarType dtype = at::kFloat;            // of weights and activations
  at::ScalarType gradient_dtype = at::kFloat;   // of accumulated gradients: fp32, or fp64 in fp64 runs
  at::ScalarType statistic_dtype = at::kFloat;  // of softmax and loss statistics: fp32, or fp64
  comm::Communicator* tp = nullptr;             // null exactly when shape.tp == 1
  comm::Communicator* cp = nullptr;             // null exactly when shape.cp == 1
  OpLog* log = nullptr;                         // may be null
  TokenPlaces places;                           // without a document mask
  at::Tensor rope_cos, rope_sin;                // [S, D/2], statistic dtype
  double norm_eps = 1e-5;

  int64_t tp_rank() const { return tp == nullptr ? 0 : tp->rank(); }
  int64_t cp_rank() const { return cp == nullptr ? 0 : cp->rank(); }
  at::Tensor empty(at::IntArrayRef sizes) const;            // of `dtype`, uninitialised
  at::Tensor empty_statistic(at::IntArrayRef sizes) const;  // of `statistic_dtype`, uninitialised
};

at::ScalarType scalar_type(config::Dtype dtype);
at::ScalarType gradient_scalar_type(config::Dtype dtype);
comm::DataType data_type(at::ScalarType type);  // UsageError for types that are not communicated

// `tp` and `cp` are this worker's tensor- and context-parallel groups; each is ignored where it has one rank.
Context make_context(const config::RunFile& run, comm::Communicator* tp, comm::Communicator* cp, OpLog* log);
// The same from its parts. UsageError when the head dimension is odd (rotary embedding turns pairs), when a
// group is missing or has another size than the shape's, when sequence parallel does not divide the tokens,
// or context parallel's chunks the sequence.
Context make_context(const model::ShardShape& shape, config::Dtype dtype, double rope_theta, double norm_eps,
                     comm::Communicator* tp, comm::Communicator* cp, OpLog* log);

}  // namespace lockstep::nn
