#include "sim/simulate_step.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>
#include <string>

#include "base/error.hpp"
#include "sim/ideal_pipeline.hpp"
#include "sim/imperfection.hpp"
#include "sim/run_stages.hpp"
#include "sim/step_result.hpp"

namespace lockstep::sim {

namespace {

using parallel::Axis;

void check_options(const parallel::Layout& layout, const StepOptions& options) {
  const auto check_rank = [&](int64_t rank) {
    if (rank >= 0 && rank < layout.mesh().size()) return;
    throw UsageError("rank " + std::to_string(rank) + ": the layout has ranks 0 to " +
                     std::to_string(layout.mesh().size() - 1));
  };
  for (const double jitter : {options.op_jitter, options.rank_jitter}) {
    if (!(jitter >= 0 && jitter < 1)) throw UsageError("jitter must be in [0, 1)");
  }
  if (options.op_jitter > 0 && options.op_jitter < JitterShape::least_deviation) {
    throw UsageError("simulate.op_jitter below 1e-6 makes no difference; set it to 0");
  }
  std::set<int> traced;
  for (const int rank : options.traced_ranks) {
    check_rank(rank);
    if (!traced.insert(rank).second) {
      throw UsageError("rank " + std::to_string(rank) + " is named twice; name each rank once");
    }
  }
  for (const auto* list : {&options.slow, &options.slow_links}) {
    for (const config::SlowRank& slow : *list) {
      check_rank(slow.rank);
      if (!(slow.factor > 0 && std::isfinite(slow.factor))) {
        throw UsageError("a slow rank's factor must be above 0 and finite");
      }
    }
  }
}

// Global rank by lane.
std::vector<int> ranks_of(const parallel::Mesh& mesh, const LaneGrid& grid, int stage) {
  std::vector<int> ranks(static_cast<size_t>(grid.lanes()));
  for (int column = 0; column < grid.columns(); ++column) {
    for (int t = 0; t < grid.tp(); ++t) {
      ranks[static_cast<size_t>(grid.lane(t, column))] =
          mesh.rank({t, column % grid.cp(), stage, column / grid.cp()});
    }
  }
  return ranks;
}

// All that a stage's run refers to.
struct Stage {
  std::vector<int> ranks;
  std::unique_ptr<StageTransfers> transfers;
  std::unique_ptr<PricedProgram> program;
  RareEvents rare;
  StageLanes lanes;
  std::unique_ptr<LaneTracer> tracer;
};

StageLanes stage_lanes(const parallel::Layout& layout, const LaneGrid& grid, const Stage& stage,
                       const std::vector<double>& factors, const StepOptions& options,
                       const JitterShape& shape) {
  StageLanes out;
  out.grid = &grid;
  out.kv_copies = layout.mesh().size(Axis::tp_kv);
  if (options.contention) {
    out.transfers = stage.transfers.get();
    out.communication_slowdown = layout.run().cluster.communication_slowdown;
  }
  out.shape = shape.off() ? nullptr : &shape;
  out.rare = stage.rare.any() ? &stage.rare : nullptr;
  for (const int rank : stage.ranks) {
    out.time_factor.push_back(factors[static_cast<size_t>(rank)]);
    const LaneKey key = lane_key(static_cast<uint64_t>(options.seed), options.step, rank);
    out.key_a.push_back(key.a);
    out.key_b.push_back(key.b);
  }
  return out;
}

// Null when no rank of the stage is traced.
std::unique_ptr<LaneTracer> tracer_of(const parallel::Mesh& mesh, const LaneGrid& grid, const Stage& stage,
                                      const StepOptions& options) {
  std::vector<LaneTracer::Traced> lanes;
  for (const int rank : options.traced_ranks) {
    const parallel::Coordinates c = mesh.coordinates(rank);
    if (c.pp != stage.program->stage()) continue;
    lanes.push_back({grid.lane(c.tp, grid.column(c.cp, c.dp)), c.tp, rank});
  }
  if (lanes.empty()) return nullptr;
  const size_t spans = stage.program->op_count() + stage.rare.pauses.size();
  return std::make_unique<LaneTracer>(std::move(lanes), stage.program->stage(), mesh.stride(Axis::pp),
                                      options.step, spans);
}

void check_programs(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  if (static_cast<int>(programs.size()) != layout.stages()) {
    throw RunError(std::to_string(programs.size()) + " programs for " + std::to_string(layout.stages()) +
                   " stages");
  }
  for (size_t s = 0; s < programs.size(); ++s) {
    if (programs[s].stage != static_cast<int>(s)) throw RunError("programs must stand in order of stage");
  }
}

std::vector<Stage> make_stages(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                               const LaneGrid& grid, cost::TransferPrices& transfer_prices,
                               const StepOptions& options, const JitterShape& shape) {
  const cost::OpPrices prices(layout.run());
  const std::vector<double> factors = time_factors(layout, options);
  std::vector<Stage> stages(programs.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    Stage& stage = stages[s];
    stage.ranks = ranks_of(layout.mesh(), grid, static_cast<int>(s));
    stage.transfers = std::make_unique<StageTransfers>(
        transfer_prices, layout.mesh(), static_cast<int>(layout.run().cluster.gpus_per_node), stage.ranks);
    stage.program = std::make_unique<PricedProgram>(layout, programs[s], prices, *stage.transfers,
                                                    options.free, options.contention);
    stage.rare = rare_events(layout, programs[s], stage.ranks, options);
    stage.lanes = stage_lanes(layout, grid, stage, factors, options, shape);
    stage.tracer = tracer_of(layout.mesh(), grid, stage, options);
  }
  return stages;
}

// For the draws of all stages' ops; empty where nothing is drawn.
std::vector<OpKey> op_keys(const std::vector<Stage>& stages) {
  const bool any_draws = std::any_of(stages.begin(), stages.end(), [](const Stage& stage) {
    return stage.lanes.shape != nullptr || stage.lanes.rare != nullptr;
  });
  std::vector<OpKey> keys;
  if (!any_draws) return keys;
  uint32_t count = 0;
  for (const Stage& stage : stages) count = std::max(count, stage.program->op_count());
  keys.reserve(count);
  for (uint32_t op = 0; op < count; ++op) keys.push_back(op_key(op));
  return keys;
}

std::unique_ptr<PathBook> path_book(const std::vector<Stage>& stages) {
  std::vector<std::vector<int>> ranks;
  for (const Stage& stage : stages) ranks.push_back(stage.ranks);
  return std::make_unique<PathBook>(std::move(ranks));
}

CriticalPath path_to_end(const PathBook& book, const std::vector<StageRun>& runs) {
  size_t last_stage = 0, last_lane = 0;
  for (size_t s = 0; s < runs.size(); ++s) {
    const std::vector<double>& clock = runs[s].times().clock;
    const auto latest = std::max_element(clock.begin(), clock.end());
    if (*latest <= runs[last_stage].times().clock[last_lane] && s > 0) continue;
    last_stage = s;
    last_lane = static_cast<size_t>(latest - clock.begin());
  }
  return book.path_of(static_cast<int>(last_stage), last_lane);
}

}  // namespace

StepOptions step_options(const config::SimulateConfig& simulate) {
  StepOptions options;
  static_cast<config::SimulateConfig&>(options) = simulate;
  return options;
}

StepResult simulate_step(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                         const StepOptions& options) {
  const auto wall_start = std::chrono::steady_clock::now();
  check_options(layout, options);
  check_programs(layout, programs);
  const parallel::Mesh& mesh = layout.mesh();
  const LaneGrid grid(mesh.size(Axis::tp), mesh.size(Axis::cp), mesh.size(Axis::dp));
  const JitterShape shape =
      options.jitter ? JitterShape(options.op_jitter, options.tail_probability, options.tail_factor)
                     : JitterShape(0);
  const auto network = network_for(layout, options, options.network);
  std::vector<Stage> stages = make_stages(layout, programs, grid, network->prices(), options, shape);
  const std::vector<OpKey> keys = op_keys(stages);
  for (Stage& stage : stages) stage.lanes.op_keys = keys.empty() ? nullptr : &keys;

  Exchange exchange(layout.stages(), static_cast<size_t>(grid.lanes()));
  const std::unique_ptr<PathBook> path = options.critical_path ? path_book(stages) : nullptr;
  std::vector<StageRun> runs;
  runs.reserve(stages.size());
  for (const Stage& stage : stages) {
    runs.emplace_back(*stage.program, stage.lanes, exchange, stage.tracer.get(), path.get());
  }
  run_to_end(runs, exchange, path == nullptr ? options.threads : 1);

  std::vector<const PricedProgram*> priced;
  for (const Stage& stage : stages) priced.push_back(stage.program.get());
  StepResult result = collect_result(mesh, grid, runs, ideal_pipeline(priced, PricedProgram::Free::messages));
  if (path != nullptr) result.critical_path = path_to_end(*path, runs);
  result.bubble_fraction = ideal_pipeline(priced, PricedProgram::Free::all_communication).bubble_fraction();
  for (const Stage& stage : stages) {
    result.ops += int64_t{stage.program->op_count()} * grid.lanes();
    if (stage.tracer == nullptr) continue;
    for (observe::SpanFile& file : stage.tracer->take()) result.traces.push_back(std::move(file));
  }
  std::sort(result.traces.begin(), result.traces.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  if (!options.is_free(PathKind::data)) {
    const double wait = cost::batch_wait(layout, programs, cost::OpPrices(layout.run()), result.seconds);
    if (wait > 0) wait_for_batch(result, wait);
  }
  result.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_start).count();
  return result;
}

}  // namespace lockstep::sim
