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
  Shape(const parallel::Layout& layout, const StepCosts& costs)
      : overlap_(overlap_of(layout, costs.contention, 0)) {
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
  const Overlap& overlap() const { return overlap_; }

 private:
  void add(const StageCost& stage) {
    std::vector<ChunkTimes> chunks;
    bool first = true;
    for (const ChunkCost& cost : stage.chunks) {
      ChunkTimes times = chunk_times(overlap_, cost, first);
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
  std::vector<std::vector<ChunkTimes>> chunks_;
  std::vector<StageTimes> stages_;
  StepShape shape_;
};

// Sums of many times: what differs by less does not differ.
constexpr double rounding = 1e-12;

// First forward to last backward, and how much of it is messages.
struct Window {
  double seconds = 0;
  double messages = 0;
};

Window window_of(const StepShape& shape) {
  StepShape no_messages = shape;
  no_messages.message = 0;
  const double seconds = pipeline_seconds(shape);
  return {seconds, seconds - pipeline_seconds(no_messages)};
}

// Seconds of each chunk, by the model's chunks, as the schedule takes them.
template <class Seconds>
std::vector<double> by_model_chunk(const std::vector<StageCost>& stages, Seconds seconds) {
  std::vector<double> out;
  for (size_t chunk = 0; chunk < stages.front().chunks.size(); ++chunk) {
    for (const StageCost& stage : stages) out.push_back(seconds(stage.chunks[chunk]));
  }
  return out;
}

// Idle share of the pipeline phase by the schedule alone, mean over stages: the schedule itself with the
// kernels' times and free communication, as the simulator has it.
double bubble_fraction(const parallel::Layout& layout, const std::vector<StageCost>& stages) {
  const auto kernels_of = [](const BlockingCost& pass) { return std::max(pass.kernels, pass.host); };
  const auto forward = [&](const ChunkCost& c) { return kernels_of(c.forward); };
  // A backward in one stands for its first half.
  const auto first_half = [&](const ChunkCost& c) {
    return kernels_of(c.halves ? c.backward_input : c.backward());
  };
  const auto second_half = [&](const ChunkCost& c) { return c.halves ? kernels_of(c.backward_weight) : 0; };
  double kernels = 0;
  for (const StageCost& stage : stages) {
    double of_stage = 0;
    for (const ChunkCost& c : stage.chunks) of_stage += forward(c) + (first_half(c) + second_half(c));
    kernels += layout.micro_batches() * of_stage;
  }
  const double window = parallel::pipeline_window(
      layout.schedule(), {by_model_chunk(stages, forward), by_model_chunk(stages, first_half),
                          by_model_chunk(stages, second_half)});
  const double idle = 1 - kernels / (layout.stages() * window);
  return idle > rounding ? idle : 0;
}

// Means over stages; bubble is what is left, imbalance of the stages included. What is slower beside
// collectives over dp_cp counts as theirs.
cost::StepSplit split_of(const parallel::Layout& layout, const std::vector<StageCost>& stages,
                         const Overlap& overlap, double seconds, const Window& window, const StepEnds& ends) {
  const double m = layout.micro_batches();
  const double p = layout.stages();
  cost::StepSplit split;
  double last_reduce = 0, update = 0, norm_dp = 0, held = 0;
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
    norm_dp += stage.norm_dp / p;
    bool first = true;
    for (const ChunkCost& chunk : stage.chunks) {
      const HeldUp one = held_up(overlap, chunk, first);
      held += m * (one.forward + one.backward) / p;
      first = false;
    }
  }
  split.optimizer += update;
  split.pp = window.messages + ends.tied + ends.norm_pp;
  split.dp = ends.first_gather + held + std::max(0.0, ends.reduced - last_reduce) + ends.gathered + norm_dp +
             std::max(0.0, ends.optimizer - update);
  // What the stages do not wait for, of what the slowest one does.
  const double over = split.total() - seconds;
  if (over > 0) split.dp = std::max(0.0, split.dp - over);
  const double idle = seconds - split.total();
  split.bubble = idle > rounding * seconds ? idle : 0;
  return split;
}

}  // namespace

StepTime step_time(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  const cost::OpPrices prices(layout.run());
  const StepCosts costs = step_costs(layout, programs, prices);
  const Shape shape(layout, costs);
  const Window window = window_of(shape.shape());
  const StepEnds ends = step_ends(shape.shape());

  StepTime time;
  time.seconds = window.seconds + ends.total();
  time.split = split_of(layout, costs.stages, shape.overlap(), time.seconds, window, ends);
  const double wait = cost::batch_wait(layout, programs, prices, time.seconds);
  time.seconds += wait;
  time.split.data += wait;
  time.bubble_fraction = bubble_fraction(layout, costs.stages);
  return time;
}

}  // namespace lockstep::plan
