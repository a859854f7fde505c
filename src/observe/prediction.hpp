// What the simulator said of a run's steps before the first one was taken.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace lockstep::observe {

struct Prediction {
  // Where a step's seconds go, means over ranks; the parts sum to the step (cost::StepSplit's own names).
  static constexpr std::array<std::string_view, 9> part_names = {
      "data", "compute", "tp", "cp", "pp", "dp", "bubble", "optimizer", "barrier"};

  std::string cluster;  // whose figures it was made with: a preset's name, or a file's
  double seconds = 0;   // of one step, without jitter
  std::array<double, part_names.size()> parts{};

  bool operator==(const Prediction&) const = default;
};

}  // namespace lockstep::observe
