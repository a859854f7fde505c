// Input embedding, its rows (the vocabulary) cut over tensor parallel.
#pragma once

#include <ATen/ATen.h>

#include "nn/context.hpp"

namespace lockstep::nn {

struct EmbeddingActivations {
  at::Tensor ids;  // [T] int64
  int64_t bytes() const;
};

// weight [V, H], this rank's rows; ids [T] int64 in the model's vocabulary (RunError else) -> [t, H].
at::Tensor embedding_forward(const Context& ctx, const at::Tensor& weight, const at::Tensor& ids,
                             EmbeddingActivations& kept);

// dy [t, H]; adds to gradient [V, H] (gradient dtype), tokens in ascending order.
void embedding_backward(const Context& ctx, EmbeddingActivations&& kept, at::Tensor dy, at::Tensor& gradient);

}  // namespace lockstep::nn
