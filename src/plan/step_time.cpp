#include "plan/step_time.hpp"

#include <algorithm>

#include "plan/hidden_collectives.hpp"
#include "plan/pipeline_time.hpp"
#include "plan/stage_costs.hpp"

namespace lockstep::plan {

namespace {

using ByStage = std::vector<std::vector<double>>;  // [stage][chunk], seconds

template <class F>
ByStage of_chunks(const std::vector<StageCost>& stages, F f) {
  ByStage out;
  for (const StageCost& stage : stages) {
    std::vector<double> row;
    for (const ChunkCost& chunk : stage.chunks) row.push_back(f(chunk));
    out.push_back(std::move(row));
  }
  return out;
}
ByStage sum_of(ByStage a, const ByStage& b) {
  for (size_t s = 0; s < a.size(); ++s) {
    for (size_t c = 0; c < a[s].size(); ++c) a[s][c] += b[s][c];
  }
  return a;
}

struct PassTimes {
  ByStage forward, backward_input, backward_weight;
  // Mean of what comes on top and keeps the stage: what collectives beside the computation hold up, and the
  // reductions before a chunk's last one.
  ByStage forward_held, backward_held;
};

PassTimes pass_times(const parallel::Layout& layout, const std::vector<StageCost>& stages) {
  const auto seconds = [&](BlockingCost ChunkCost::*cost) {
    return of_chunks(stages, [&](const ChunkCost& chunk) { return (chunk.*cost).seconds(); });
  };
  PassTimes times{seconds(&ChunkCost::forward),
                  seconds(&ChunkCost::backward_input),
                  seconds(&ChunkCost::backward_weight),
                  {},
                  {}};
  for (const StageCost& stage : stages) {
    std::vector<double> forward, backward;
    for (const HeldUp& held : held_up(layout, stage)) {
      const ChunkCost& chunk = stage.chunks[forward.size()];
      const double earlier = (chunk.reductions - 1) * chunk.reduce.seconds() / layout.micro_batches();
      forward.push_back(held.forward);
      backward.push_back(held.backward + earlier);
    }
    times.forward_held.push_back(std::move(forward));
    times.backward_held.push_back(std::move(backward));
  }
  return times;
}

PipelineShape pipeline_shape(const parallel::Layout& layout, const std::vector<StageCost>& stages,
                             const PassTimes& times) {
  PipelineShape shape;
  shape.schedule = layout.run().parallel.schedule;
  shape.micro_batches = layout.micro_batches();
  shape.forward = times.forward;
  shape.backward = of_chunks(stages, [](const ChunkCost& chunk) { return chunk.backward_seconds(); });
  shape.forward_held = times.forward_held;
  shape.backward_held = times.backward_held;
  for (const StageCost& stage : stages) shape.message = std::max(shape.message, stage.message);
  return shape;
}

// By the model's chunks, as the schedule takes them.
std::vector<double> by_model_chunk(const ByStage& by_stage) {
  std::vector<double> out;
  for (size_t chunk = 0; chunk < by_stage.front().size(); ++chunk) {
    for (const auto& stage : by_stage) out.push_back(stage[chunk]);
  }
  return out;
}

// First forward to last backward, and how much of it is messages.
struct Window {
  double seconds = 0;
  double messages = 0;
};

Window window_of(const parallel::Layout& layout, const PassTimes& times, const PipelineShape& shape) {
  PipelineShape no_messages = shape;
  no_messages.message = 0;
  const double seconds = pipeline_seconds(shape);
  const double messages = seconds - pipeline_seconds(no_messages);
  const bool halves = shape.schedule == config::ScheduleKind::zero_bubble_h1 && shape.stages() > 1;
  if (!halves) return {seconds, messages};
  // There is no closed form of how weight gradients fill the gaps: the schedule itself is walked. Messages
  // delay it as they do 1F1B, whose order of forwards and input gradients it has.
  const parallel::PassSeconds passes{by_model_chunk(sum_of(times.forward, times.forward_held)),
                                     by_model_chunk(times.backward_input),
                                     by_model_chunk(sum_of(times.backward_weight, times.backward_held))};
  return {parallel::pipeline_window(layout.schedule(), passes) + messages, messages};
}

// Optimizer kernels one after another, each chunk's parameters gathered beside the next ones' kernels.
double optimizer_seconds(const StageCost& stage, bool gathers) {
  double kernels = 0, stream = 0;
  for (const ChunkCost& chunk : stage.chunks) {
    kernels += chunk.update;
    stream = std::max(stream, kernels) + (gathers ? chunk.gather : 0);
  }
  return std::max(stream, kernels);
}

template <class F>
double sum(const StageCost& stage, F f) {
  double total = 0;
  for (const ChunkCost& chunk : stage.chunks) total += f(chunk);
  return total;
}

// What the closed form adds to the pipeline.
struct Ends {
  double first_gather = 0;  // of the first chunk's parameters, before the first forward
  double reduced = 0;       // after the last backward, until gradients are reduced
  double gathered = 0;      // reduced gradients, to all
  double tied = 0;          //
  double norm = 0;          // the norm's kernel and its collectives over dp and tp
  double norm_pp = 0;       //
  double optimizer = 0;     // kernels and gathers

  double total() const { return first_gather + reduced + gathered + tied + norm + norm_pp + optimizer; }
};

Ends ends_of(const parallel::Layout& layout, const std::vector<StageCost>& stages,
             const PipelineShape& shape) {
  Ends ends;
  if (layout.zero() == 3) ends.first_gather = stages.front().chunks.front().gather;
  if (layout.gathers_at_start()) ends.first_gather = exposed_gather(stages.front(), shape);
  const bool overlaps = layout.run().software.overlap_gradients;
  ends.norm_pp = stages.front().norm_pp;
  // A stage ends its last backward before the first one does, by the way the last gradient still goes.
  double way_to_first = 0;
  for (const StageCost& stage : stages) {
    const double reduction = overlaps ? exposed_reduction(stage, shape) : reduction_seconds(stage);
    ends.reduced = std::max(ends.reduced, reduction - way_to_first);
    const ChunkCost& first = stage.chunks.front();
    way_to_first += first.backward_input.seconds() + stage.message;
    if (!first.halves) way_to_first += first.backward_weight.seconds();
    ends.gathered = std::max(ends.gathered, sum(stage, [](const auto& c) { return c.gather_gradients; }));
    ends.tied = std::max(ends.tied, sum(stage, [](const auto& c) { return c.sum_tied; }));
    ends.norm = std::max(ends.norm, stage.norm_kernel + stage.norm_dp + stage.norm_tp);
    ends.optimizer = std::max(ends.optimizer, optimizer_seconds(stage, layout.gathers_after_update()));
  }
  return ends;
}

// Idle share of the pipeline phase by the schedule alone, mean over stages: the schedule itself with the
// kernels' times and free communication, as the simulator has it.
double bubble_fraction(const parallel::Layout& layout, const std::vector<StageCost>& stages) {
  const auto kernels_of = [](const BlockingCost& pass) { return std::max(pass.kernels, pass.host); };
  const auto seconds = [&](auto f) { return by_model_chunk(of_chunks(stages, f)); };
  // A backward in one stands for its first half.
  const auto first_half = [&](const ChunkCost& c) {
    return kernels_of(c.halves ? c.backward_input : c.backward());
  };
  const auto second_half = [&](const ChunkCost& c) { return c.halves ? kernels_of(c.backward_weight) : 0; };
  double kernels = 0;
  for (const StageCost& stage : stages) {
    double of_stage = 0;
    for (const ChunkCost& c : stage.chunks) {
      of_stage += kernels_of(c.forward) + (first_half(c) + second_half(c));
    }
    kernels += layout.micro_batches() * of_stage;
  }
  const double window = parallel::pipeline_window(
      layout.schedule(), {seconds([&](const ChunkCost& c) { return kernels_of(c.forward); }),
                          seconds(first_half), seconds(second_half)});
  return std::max(0.0, 1 - kernels / (layout.stages() * window));
}

// Means over stages; bubble is what is left, imbalance of the stages included.
cost::StepSplit split_of(const parallel::Layout& layout, const std::vector<StageCost>& stages, double seconds,
                         const Window& window, const Ends& ends) {
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
    for (const HeldUp& one : held_up(layout, stage)) held += m * (one.forward + one.backward) / p;
  }
  split.optimizer += update;
  split.pp = window.messages + ends.tied + ends.norm_pp;
  split.dp = ends.first_gather + held + std::max(0.0, ends.reduced - last_reduce) + ends.gathered + norm_dp +
             std::max(0.0, ends.optimizer - update);
  // What the stages do not wait for, of what the slowest one does.
  const double over = split.total() - seconds;
  if (over > 0) split.dp = std::max(0.0, split.dp - over);
  split.bubble = std::max(0.0, seconds - split.total());
  return split;
}

}  // namespace

StepTime step_time(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  const cost::OpPrices prices(layout.run());
  const std::vector<StageCost> stages = stage_costs(layout, programs, prices);
  const PassTimes times = pass_times(layout, stages);
  const PipelineShape shape = pipeline_shape(layout, stages, times);
  const Window window = window_of(layout, times, shape);
  const Ends ends = ends_of(layout, stages, shape);

  StepTime time;
  time.seconds = stages.front().load + window.seconds + ends.total();
  time.split = split_of(layout, stages, time.seconds, window, ends);
  const double wait = cost::batch_wait(layout, programs, prices, time.seconds);
  time.seconds += wait;
  time.split.data += wait;
  time.bubble_fraction = bubble_fraction(layout, stages);
  return time;
}

Training training_of(const config::RunFile& run, double step_seconds) {
  const double batch = static_cast<double>(run.train.global_batch * run.train.sequence);
  Training t;
  t.tokens = run.train.tokens > 0 ? static_cast<double>(run.train.tokens)
                                  : static_cast<double>(run.train.steps) * batch;
  const double hours = t.tokens / batch * step_seconds / 3600;
  t.days = hours / 24;
  t.gpu_hours = hours * static_cast<double>(run.parallel.world_size());
  t.usd = t.gpu_hours * run.cluster.usd_per_gpu_hour;
  return t;
}

}  // namespace lockstep::plan
