#include "plan/step_time.hpp"

#include <algorithm>

#include "plan/hidden_collectives.hpp"
#include "plan/pipeline_time.hpp"
#include "plan/stage_costs.hpp"

namespace lockstep::plan {

namespace {

// A layout's costs as the closed form takes them: what is alike together.
class Shape {
 public:
  // Without `beside`: as if collectives beside the passes, gathers and scatters, held nothing up.
  Shape(const parallel::Layout& layout, const StepCosts& costs, bool beside = true)
      : overlap_(overlap_of(layout, costs.contention, 0)), beside_(beside) {
    for (const StageCost& stage : costs.stages) overlap_.message = std::max(overlap_.message, stage.message);
    chunks_.reserve(costs.stages.size());  // stages refer to them
    for (const StageCost& stage : costs.stages) add(stage);
    shape_.schedule = layout.run().parallel.schedule;
    shape_.stages = layout.stages();
    shape_.chunks = layout.virtual_stages();
    shape_.micro_batches = layout.micro_batches();
    shape_.zero_3 = layout.zero() == 3;
    shape_.gathers_at_start = layout.gathers_at_start();
    shape_.gathers_after_update = layout.gathers_after_update();
    shape_.overlaps_gradients = layout.run().software.overlap_gradients;
    shape_.message = overlap_.message;
    shape_.of_stage = stages_;
  }
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;

  const StepShape& shape() const { return shape_; }

 private:
  void add(const StageCost& stage) {
    std::vector<ChunkTimes> chunks;
    bool first = true;
    for (const ChunkCost& cost : stage.chunks) {
      ChunkTimes times = chunk_times(overlap_, cost, first);
      if (!beside_) {
        const HeldUp held = held_up(overlap_, cost, first);
        times.forward_held -= held.forward;
        times.backward_held -= held.backward;
        times.gathers = times.scatters = 0;
      }
      first = false;
      if (!chunks.empty()) times.count = chunks.back().count;
      if (!chunks.empty() && times == chunks.back()) {
        ++chunks.back().count;
      } else {
        times.count = 1;
        chunks.push_back(times);
      }
    }
    const StageTimes times{
        1, {}, stage.load, stage.norm_kernel + stage.norm_dp + stage.norm_tp, stage.norm_pp};
    if (!stages_.empty() && chunks == chunks_.back() && times.load == stages_.back().load &&
        times.norm == stages_.back().norm && times.norm_pp == stages_.back().norm_pp) {
      ++stages_.back().count;
      return;
    }
    chunks_.push_back(std::move(chunks));
    stages_.push_back(times);
    stages_.back().chunks = chunks_.back();
  }

  Overlap overlap_;
  bool beside_;
  std::vector<std::vector<ChunkTimes>> chunks_;
  std::vector<StageTimes> stages_;
  StepShape shape_;
};

// Sums of many times: what differs by less does not differ.
constexpr double rounding = 1e-12;

// Seconds of each chunk, by the model's chunks, as the schedule takes them.
template <class Seconds>
std::vector<double> by_model_chunk(const std::vector<StageCost>& stages, Seconds seconds) {
  std::vector<double> out;
  for (size_t chunk = 0; chunk < stages.front().chunks.size(); ++chunk) {
    for (const StageCost& stage : stages) out.push_back(seconds(stage.chunks[chunk]));
  }
  return out;
}

// The pipeline phase by the schedule alone, messages free: a walk through it with `seconds` of each pass.
struct Phase {
  double window = 0;
  double idle = 0;  // seconds, mean over stages

  double idle_share() const { return window > 0 && idle > rounding * window ? idle / window : 0; }
};

template <class Seconds>
Phase phase_of(const parallel::Layout& layout, const std::vector<StageCost>& stages, Seconds seconds) {
  const auto forward = [&](const ChunkCost& c) { return seconds(c.forward); };
  // A backward in one stands for its first half.
  const auto first_half = [&](const ChunkCost& c) {
    return seconds(c.halves ? c.backward_input : c.backward());
  };
  const auto second_half = [&](const ChunkCost& c) { return c.halves ? seconds(c.backward_weight) : 0; };
  Phase phase;
  phase.window = parallel::pipeline_window(
      layout.schedule(), {by_model_chunk(stages, forward), by_model_chunk(stages, first_half),
                          by_model_chunk(stages, second_half)});
  for (const StageCost& stage : stages) {
    double busy = 0;
    for (const ChunkCost& c : stage.chunks) busy += forward(c) + (first_half(c) + second_half(c));
    phase.idle += std::max(0.0, phase.window - layout.micro_batches() * busy) / layout.stages();
  }
  return phase;
}

// Idle share of the pipeline phase with the kernels' times alone.
double bubble_fraction(const parallel::Layout& layout, const std::vector<StageCost>& stages) {
  const auto kernels = [](const BlockingCost& pass) { return std::max(pass.kernels, pass.host); };
  return phase_of(layout, stages, kernels).idle_share();
}

// What the stages do, means over them; no waiting but for the ends of the step.
cost::StepSplit work_of(const parallel::Layout& layout, const std::vector<StageCost>& stages,
                        const StepEnds& ends) {
  const double m = layout.micro_batches(), p = layout.stages();
  cost::StepSplit split;
  double last_reduce = 0, update = 0;
  for (const StageCost& stage : stages) {
    BlockingCost blocking = m * stage.passes();
    for (const ChunkCost& chunk : stage.chunks) {
      blocking += static_cast<double>(chunk.reductions) * chunk.reduce;
      last_reduce += chunk.reduce.seconds() / p;
      update += chunk.update / p;
    }
    split.data += stage.load / p;
    split.compute += blocking.kernels / p;
    split.tp += (blocking.tp + stage.norm_tp) / p;
    split.cp += blocking.cp / p;
    split.optimizer += stage.norm_kernel / p;
    split.dp += stage.norm_dp / p;
  }
  split.optimizer += update;
  split.dp += ends.first_gather + std::max(0.0, ends.reducing - last_reduce) + ends.gathered.mean +
              std::max(0.0, ends.optimizer.mean - update);
  // The norm waits for the slowest stage, over pp; after it nothing does.
  split.pp = ends.tied + ends.norm_pp + (ends.reduced.longest - ends.reduced.mean) +
             (ends.gathered.longest - ends.gathered.mean);
  split.barrier = ends.optimizer.longest - ends.optimizer.mean;
  return split;
}

// As the simulator's: bubble is what the schedule alone leaves idle, with tensor- and context-parallel
// collectives in the passes. Of what is left, dp has what the pipeline would be shorter by without gathers
// and scatters beside it (`held`), and pp the rest: messages, and whatever makes stages wait for one another.
cost::StepSplit split_of(const parallel::Layout& layout, const std::vector<StageCost>& stages,
                         const StepEnds& ends, double seconds, double held) {
  cost::StepSplit split = work_of(layout, stages, ends);
  const auto device = [](const BlockingCost& pass) { return pass.seconds(); };
  const Phase schedule = phase_of(layout, stages, device);
  const double left = seconds - split.total();
  split.bubble = schedule.idle > rounding * seconds ? std::min(schedule.idle, std::max(0.0, left)) : 0;
  const double waits = std::max(0.0, left - split.bubble);
  // Without a group over dp x cp it is messages that slow the passes.
  const bool reduces = layout.mesh().size(model::Axis::dp_cp) > 1;
  const double of_dp = !reduces ? 0 : layout.stages() == 1 ? waits : std::min(held, waits);
  split.dp += of_dp;
  split.pp += waits - of_dp;
  // Ends are the slowest stage's; where the sum is more than the step, others do not wait as long.
  if (left < -rounding * seconds) split.dp += left;
  return split;
}

}  // namespace

StepTime step_time(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  const cost::OpPrices prices(layout.run());
  const StepCosts costs = step_costs(layout, programs, prices);
  const Shape shape(layout, costs), undisturbed(layout, costs, false);
  const StepEnds ends = step_ends(shape.shape());
  const double window = pipeline_seconds(shape.shape());

  StepTime time;
  time.seconds = window + ends.total();
  time.split =
      split_of(layout, costs.stages, ends, time.seconds, window - pipeline_seconds(undisturbed.shape()));
  const double wait = cost::batch_wait(layout, programs, prices, time.seconds);
  time.seconds += wait;
  time.split.data += wait;
  time.bubble_fraction = bubble_fraction(layout, costs.stages);
  return time;
}

}  // namespace lockstep::plan
