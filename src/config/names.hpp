// The words that stand for enumerators in run files, in the enumerators' order.
#pragma once

#include <array>
#include <cstddef>

#include "config/run_file.hpp"

namespace lockstep::config {

inline constexpr std::array<const char*, 1> architecture_names = {"llama"};
inline constexpr std::array<const char*, 3> schedule_names = {"gpipe", "1f1b", "interleaved"};
inline constexpr std::array<const char*, 3> dtype_names = {"bf16", "fp32", "fp64"};

inline const auto& names_of(Architecture) { return architecture_names; }
inline const auto& names_of(ScheduleKind) { return schedule_names; }
inline const auto& names_of(Dtype) { return dtype_names; }

}  // namespace lockstep::config
