#include "sim/simulate_step.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>
#include <string>

#include "base/error.hpp"
#include "sim/ideal_pipeline.hpp"
#include "sim/run_stages.hpp"
#include "sim/step_result.hpp"

namespace lockstep::sim {

namespace {

using parallel::Axis;

void check_options(const parallel::Layout& layout, const StepOptions& options) {
  const auto check_rank = [&](int rank) {
    if (rank >= 0 && rank < layout.mesh().size()) return;
    throw UsageError("rank " + std::to_string(rank) + ": the layout has ranks 0 to " +
                     std::to_string(layout.mesh().size() - 1));
  };
  for (const double jitter : {options.op_jitter, options.rank_jitter}) {
    if (!(jitter >= 0 && jitter < 1)) throw UsageError("jitter must be in [0, 1)");
  }
  std::set<int> traced;
  for (const int rank : options.traced_ranks) {
    check_rank(rank);
    if (!traced.insert(rank).second) {
      throw UsageError("rank " + std::to_string(rank) + " is named twice; name each rank once");
    }
  }
  for (const SlowRank& slow : options.slow) {
    check_rank(slow.rank);
    if (!(slow.factor > 0 && std::isfinite(slow.factor))) {
      throw UsageError("a slow rank's factor must be above 0 and finite");
    }
  }
}

// Time factors of all ranks' kernels.
std::vector<double> time_factors(int ranks, const StepOptions& options) {
  std::vector<double> factors(static_cast<size_t>(ranks), 1.0);
  if (options.jitter && options.rank_jitter > 0) {
    for (int r = 0; r < ranks; ++r) {
      factors[static_cast<size_t>(r)] = rank_time_factor(options.seed, r, options.rank_jitter);
    }
  }
  for (const SlowRank& slow : options.slow) factors[static_cast<size_t>(slow.rank)] *= slow.factor;
  return factors;
}

StageLanes stage_lanes(const parallel::Mesh& mesh, const LaneGrid& grid, int stage, StagePaths paths,
                       const std::vector<double>& factors, const StepOptions& options,
                       const JitterShape* shape) {
  const size_t lanes = static_cast<size_t>(grid.lanes());
  StageLanes out{&grid, mesh.size(Axis::tp_kv), std::move(paths), std::vector<double>(lanes), {}, {}, shape};
  out.key_a.resize(lanes);
  out.key_b.resize(lanes);
  for (int column = 0; column < grid.columns(); ++column) {
    for (int t = 0; t < grid.tp(); ++t) {
      const int rank = mesh.rank({t, column % grid.cp(), stage, column / grid.cp()});
      const size_t lane = static_cast<size_t>(grid.lane(t, column));
      out.time_factor[lane] = factors[static_cast<size_t>(rank)];
      const LaneKey key = lane_key(options.seed, options.step, rank);
      out.key_a[lane] = key.a;
      out.key_b[lane] = key.b;
    }
  }
  return out;
}

// Null when no rank of the stage is traced.
std::unique_ptr<LaneTracer> tracer_of(const parallel::Mesh& mesh, const LaneGrid& grid,
                                      const PricedProgram& program, const StepOptions& options) {
  std::vector<LaneTracer::Traced> lanes;
  for (const int rank : options.traced_ranks) {
    const parallel::Coordinates c = mesh.coordinates(rank);
    if (c.pp == program.stage()) lanes.push_back({grid.lane(c.tp, grid.column(c.cp, c.dp)), rank});
  }
  if (lanes.empty()) return nullptr;
  return std::make_unique<LaneTracer>(std::move(lanes), program.stage(), mesh.stride(Axis::pp), options.step,
                                      program.op_count());
}

std::vector<PricedProgram> price_all(const parallel::Layout& layout,
                                     const std::vector<parallel::Program>& programs,
                                     const cost::OpPrices& prices) {
  if (static_cast<int>(programs.size()) != layout.stages()) {
    throw RunError(std::to_string(programs.size()) + " programs for " + std::to_string(layout.stages()) +
                   " stages");
  }
  std::vector<PricedProgram> out;
  for (size_t s = 0; s < programs.size(); ++s) {
    if (programs[s].stage != static_cast<int>(s)) throw RunError("programs must stand in order of stage");
    out.emplace_back(layout, programs[s], prices);
  }
  return out;
}

}  // namespace

StepOptions step_options(const config::SimulateConfig& simulate) {
  StepOptions options;
  options.jitter = simulate.jitter;
  options.op_jitter = simulate.op_jitter;
  options.rank_jitter = simulate.rank_jitter;
  options.seed = static_cast<uint64_t>(simulate.seed);
  return options;
}

StepResult simulate_step(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                         const StepOptions& options) {
  const auto wall_start = std::chrono::steady_clock::now();
  check_options(layout, options);
  const parallel::Mesh& mesh = layout.mesh();
  const cost::OpPrices prices(layout.run());
  const std::vector<PricedProgram> priced = price_all(layout, programs, prices);
  const LaneGrid grid(mesh.size(Axis::tp), mesh.size(Axis::cp), mesh.size(Axis::dp));
  const std::vector<StagePaths> paths = stage_paths(prices.network(), mesh, grid);
  const IdealPipeline ideal = ideal_pipeline(priced, free_messages(paths));

  const std::vector<double> factors = time_factors(mesh.size(), options);
  const JitterShape shape(options.jitter ? options.op_jitter : 0);
  Exchange exchange(layout.stages(), static_cast<size_t>(grid.lanes()));
  std::vector<StageLanes> lanes;
  std::vector<std::unique_ptr<LaneTracer>> tracers;
  for (size_t s = 0; s < priced.size(); ++s) {
    lanes.push_back(stage_lanes(mesh, grid, static_cast<int>(s), paths[s], factors, options,
                                shape.off() ? nullptr : &shape));
    tracers.push_back(tracer_of(mesh, grid, priced[s], options));
  }
  std::vector<StageRun> runs;
  runs.reserve(priced.size());
  for (size_t s = 0; s < priced.size(); ++s) {
    runs.emplace_back(priced[s], lanes[s], exchange, tracers[s].get());
  }
  run_to_end(runs, exchange);

  StepResult result = collect_result(mesh, grid, runs, ideal);
  result.bubble_fraction = ideal_pipeline(priced, free_paths(layout.stages())).bubble_fraction();
  for (const PricedProgram& p : priced) result.ops += int64_t{p.op_count()} * grid.lanes();
  for (const auto& tracer : tracers) {
    if (tracer == nullptr) continue;
    for (observe::SpanFile& file : tracer->take()) result.traces.push_back(std::move(file));
  }
  std::sort(result.traces.begin(), result.traces.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  result.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_start).count();
  return result;
}

}  // namespace lockstep::sim
