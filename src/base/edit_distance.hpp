// How far apart two names are, and which known name was probably meant.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string
// alignment: no part is edited twice). Compares bytes.
size_t edit_distance(std::string_view a, std::string_view b);

// The name of `names` nearest to `name`, the first of equally near ones; empty when there are none.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace lockstep
