// One layer, run on all ranks of a case and joined, and the same by autograd.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness.hpp"

namespace lockstep::nn::test {

struct LayerResult {
  at::Tensor y, dx;
  LayerTensors gradients;
};

// Gradients start from one, to see that they are added to. Expects that the layer holds the bytes that
// model::layer_activation_bytes and layer_stash_bytes say, and frees what it has used.
LayerResult run_layer(const Case& c, const LayerTensors& weights, const at::Tensor& x, const at::Tensor& dy,
                      const model::Recompute& recompute = {});

LayerResult reference_run(const Case& c, const LayerTensors& weights, const at::Tensor& x,
                          const at::Tensor& dy);

// Relative, of every tensor.
std::map<std::string, double> errors(const LayerResult& actual, const LayerResult& expected);

// Holds each case with random weights against autograd; prints the worst error of each type.
void expect_autograd(const char* what, const std::vector<Case>& cases);

// Every tensor of both, bit for bit.
void expect_bitwise(const LayerResult& actual, const LayerResult& expected);

}  // namespace lockstep::nn::test
