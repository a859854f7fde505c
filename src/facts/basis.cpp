#include "facts/basis.hpp"

#include "base/embedded.hpp"
#include "base/error.hpp"
#include "config/load.hpp"
#include "parallel/program_check.hpp"

namespace lockstep {
// Generated from configs by cmake/embed.cmake.
std::span<const EmbeddedFile> embedded_runs();
}  // namespace lockstep

namespace lockstep::facts {

namespace {

constexpr double waveform_bin = 1e-3;
constexpr int traced_replicas = 4;

std::vector<parallel::Program> programs_of(const parallel::Layout& layout) {
  std::vector<parallel::Program> programs = parallel::build_step_programs(layout);
  parallel::check_step_programs(layout, programs);
  return programs;
}

// Of every stage one rank in each of a few replicas, spread over all.
std::vector<int> traced_ranks(const parallel::Layout& layout) {
  std::vector<int> ranks;
  const int dp = layout.mesh().size(parallel::Axis::dp);
  for (int i = 0; i < traced_replicas; ++i) {
    for (int stage = 0; stage < layout.stages(); ++stage) {
      ranks.push_back(layout.mesh().rank({0, 0, stage, i * dp / traced_replicas}));
    }
  }
  return ranks;
}

sim::StepResult simulated(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  sim::StepOptions options = sim::step_options(layout.run().simulate);
  options.traced_ranks = traced_ranks(layout);
  return sim::simulate_step(layout, programs, options);
}

}  // namespace

double dense_flops(double parameters, double tokens) { return 6 * parameters * tokens; }

config::RunFile run_405b(const std::vector<std::string>& overrides) {
  const config::Examined examined =
      config::examine_run_text(std::string(embedded_runs().front().content), run_405b_file, overrides);
  if (!examined.problems.empty()) throw UsageError(config::to_string(examined.problems));
  return examined.run;
}

Basis::Basis()
    : layout_(run_405b()),
      programs_(programs_of(layout_)),
      step_(simulated(layout_, programs_)),
      waveform_(power_waveform(run().cluster, step_.traces, gpus(), step_.seconds, waveform_bin)) {}

}  // namespace lockstep::facts
