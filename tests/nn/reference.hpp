// The independent truth: the same layers written plainly, whole and in fp64, differentiated by LibTorch's
// autograd.
#pragma once

#include <ATen/ATen.h>

#include "harness.hpp"

namespace lockstep::nn::test {

// x [T, H] -> [T, H]; differentiable.
at::Tensor reference_layer(const Case& c, const LayerTensors& weights, const at::Tensor& x);

// Sum of the cross entropies of the targets that are not -1; differentiable.
at::Tensor reference_head(const HeadTensors& weights, const at::Tensor& x, const at::Tensor& targets);

}  // namespace lockstep::nn::test
