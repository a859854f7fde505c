// What the claims are computed from: the 405B run file that comes with Lockstep, its layout and one simulated
// step, and the few formulas that several claims share.
#pragma once

#include <string>
#include <vector>

#include "facts/power_waveform.hpp"
#include "parallel/program.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::facts {

inline constexpr double named_parameters = 405e9;  // as sources round them
inline constexpr double sustained_flops = 400e12;  // a GPU, as sources round it
inline constexpr double seconds_a_day = 86400;
inline constexpr double seconds_a_year = 365.25 * seconds_a_day;
inline constexpr double cluster_usd_an_hour = 49000;
inline constexpr double run_days = 54;  // of which interruptions were counted

// 6 N D: a multiplication and an addition for each parameter forward, twice that backward (Kaplan et al.,
// arXiv:2001.08361, section 2.1).
double dense_flops(double parameters, double tokens);

// configs/llama3-405b-16k.toml as it was compiled in, with overrides. UsageError as load_run_file.
config::RunFile run_405b(const std::vector<std::string>& overrides = {});
inline const std::string run_405b_file = "configs/llama3-405b-16k.toml";

class Basis {
 public:
  Basis();

  const config::RunFile& run() const { return layout_.run(); }
  const parallel::Layout& layout() const { return layout_; }
  const std::vector<parallel::Program>& programs() const { return programs_; }
  double gpus() const { return static_cast<double>(run().parallel.world_size()); }
  double step_tokens() const { return static_cast<double>(run().train.global_batch * run().train.sequence); }

  // With the run file's jitter.
  const sim::StepResult& step() const { return step_; }
  const PowerWaveform& waveform() const { return waveform_; }

 private:
  parallel::Layout layout_;
  std::vector<parallel::Program> programs_;
  sim::StepResult step_;
  PowerWaveform waveform_;
};

}  // namespace lockstep::facts
