// Means over the steady steps of a run: those after the third, for earlier ones warm caches up, without the
// skipped ones, which trained nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/step_assembly.hpp"

namespace lockstep::cli {

class RunMeans {
 public:
  void add(const AssembledStep& step);

  // The median; NaN without a steady step.
  double tokens_per_second() const;
  // Which steps they are: "after step 3", "after step 3, 2 skipped steps left out".
  std::string over() const;
  // Lines: both MFUs, weighted by the steps' times, as shares of `peak`; and what was exposed, in shares of
  // the steps' time. Of pp and dp, which can run beside computation, also what share of the time under way
  // was hidden: hidden_seconds of every rank and step; nothing of an axis that had none under way. Empty
  // without a steady step.
  std::string text(const std::string& peak) const;

 private:
  std::string exposed_line() const;

  int64_t skipped_ = 0;
  std::vector<double> rates_;                      // tokens a second, of each step
  double seconds_ = 0, mfu_ = 0, mfu_causal_ = 0;  // sums; those of MFU weighted by seconds
  double waited_seconds_ = 0;                      // of the steps whose waits all came
  observe::ExposedSeconds exposed_;                // sum over those steps of the mean over ranks
  observe::ExposedSeconds hidden_, under_way_;     // sums over those steps and all ranks
};

}  // namespace lockstep::cli
