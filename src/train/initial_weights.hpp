// Initial weights that do not depend on the layout: element i of a parameter is a normal number drawn from
// Philox at (seed, the parameter's name, i).
#pragma once

#include <cstdint>
#include <span>

#include "train/flat_layout.hpp"

namespace lockstep::train {

// Standard normal number of element `index` of the parameter `name` (Box-Muller, one call for each pair).
double initial_normal(uint64_t seed, std::string_view name, int64_t index);

// Values of elements [begin, end) of the flat buffer; padding is zero.
void fill_initial_weights(const FlatLayout& flat, uint64_t seed, int64_t begin, std::span<double> values);

}  // namespace lockstep::train
