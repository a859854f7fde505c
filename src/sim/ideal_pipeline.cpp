#include "sim/ideal_pipeline.hpp"

#include "sim/run_stages.hpp"

namespace lockstep::sim {

double IdealPipeline::bubble_fraction() const {
  if (window <= 0) return 0;
  double idle_share = 0;
  for (size_t stage = 0; stage < busy.size(); ++stage) idle_share += idle(stage) / window;
  return idle_share / static_cast<double>(busy.size());
}

IdealPipeline ideal_pipeline(const std::vector<const PricedProgram*>& whole_programs,
                             PricedProgram::Free free) {
  std::vector<PricedProgram> programs;
  programs.reserve(whole_programs.size());
  for (const PricedProgram* program : whole_programs) programs.push_back(program->schedule_alone(free));
  const LaneGrid grid(1, 1, 1);
  const StageLanes lane = one_lane(grid);
  Exchange exchange(static_cast<int>(programs.size()), 1);
  std::vector<StageRun> runs;
  runs.reserve(programs.size());
  for (const PricedProgram& program : programs) runs.emplace_back(program, lane, exchange, nullptr);
  run_to_end(runs, exchange, 1);

  IdealPipeline ideal;
  PhaseTimes phase;
  for (const StageRun& run : runs) {
    for (const PhaseKind kind : {PhaseKind::forward, PhaseKind::backward}) {
      if (run.phase(kind).any()) phase.add(run.phase(kind).start, run.phase(kind).end);
    }
    ideal.busy.push_back(run.pass_seconds());
  }
  if (phase.any()) ideal.window = phase.end - phase.start;
  return ideal;
}

}  // namespace lockstep::sim
