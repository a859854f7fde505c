// Initial weights that do not depend on the layout: element i of a parameter is a normal number drawn from
// Philox at (seed, the parameter's name, i).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

#include "train/flat_layout.hpp"

namespace lockstep::train {

// Standard normal number of element `index` of the parameter `name` (Box-Muller, one call for each pair).
double initial_normal(uint64_t seed, std::string_view name, int64_t index);

// Of the whole flat buffer, [padded] of `type`; computed in fp64, padding is zero.
at::Tensor initial_weights(const FlatLayout& flat, uint64_t seed, at::ScalarType type);

}  // namespace lockstep::train
