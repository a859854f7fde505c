// The two communications of tensor parallel, as model::LayerProgram's gather and reduce. Tokens are the first
// dimension, micro-batch and sequence flattened; sequence parallel holds a contiguous 1/tp of them.
#pragma once

#include <ATen/ATen.h>

#include "nn/context.hpp"

namespace lockstep::nn {

// Enters a column-parallel product: [T/tp, H] -> [T, H] with sequence parallel, else x itself.
at::Tensor tp_gather(const Context& ctx, const at::Tensor& x);

// Leaves a row-parallel product: sums the ranks' [T, H], into [T/tp, H] with sequence parallel. x may be
// overwritten; without sequence parallel the result is x.
at::Tensor tp_reduce(const Context& ctx, at::Tensor x);

// Of the input of a column-parallel product as it was kept for the weight's gradient: with
// shape.keep_gathered it is whole already.
at::Tensor gather_kept_input(const Context& ctx, const at::Tensor& kept);

// All-reduce in place (loss statistics). Nothing when tp == 1.
void tp_all_reduce(const Context& ctx, at::Tensor& x, comm::ReduceOp op);

}  // namespace lockstep::nn
