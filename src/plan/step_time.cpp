#include "plan/step_time.hpp"

#include <algorithm>

#include "plan/pipeline_time.hpp"
#include "plan/stage_costs.hpp"

namespace lockstep::plan {

namespace {

PipelineShape pipeline_shape(const parallel::Layout& layout, const std::vector<StageCost>& stages) {
  PipelineShape shape;
  shape.schedule = layout.run().parallel.schedule;
  shape.micro_batches = layout.micro_batches();
  const auto seconds = [&](const std::vector<PassCost>& passes) {
    std::vector<double> out;
    for (const PassCost& p : passes) out.push_back(p.seconds());
    return out;
  };
  for (const StageCost& stage : stages) {
    shape.forward.push_back(seconds(stage.forward));
    shape.backward.push_back(seconds(stage.backward));
    shape.message = std::max(shape.message, stage.message);
  }
  return shape;
}

// Seconds from a stage's last backward until its reductions are through. Chunks end in descending order, each
// some time before the next; reductions queue up behind one another.
double exposed_reduction(const StageCost& stage, const PipelineShape& shape) {
  const int group = std::min(shape.stages(), shape.micro_batches);
  double exposed = 0, queue = 0, before_end = 0;
  for (size_t c = 0; c < stage.reduce.size(); ++c) {
    queue += stage.reduce[c];
    exposed = std::max(exposed, queue - before_end);
    before_end += chunk_loop_seconds(shape.backward, static_cast<int>(c), group, shape.message);
  }
  return exposed;
}

// Optimizer kernels one after another, each chunk's parameters gathered beside the next ones' kernels.
double optimizer_seconds(const StageCost& stage) {
  double kernels = 0, stream = 0;
  for (size_t c = 0; c < stage.adamw.size(); ++c) {
    kernels += stage.adamw[c];
    stream = std::max(stream, kernels) + stage.gather[c];
  }
  return std::max(stream, kernels);
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double v : values) total += v;
  return total;
}

// What the closed form adds to the passes themselves.
struct Tail {
  double reduced = 0;    // after the last backward, until gradients are reduced
  double norm = 0;       // the norm's kernel and its collectives over dp and tp
  double norm_pp = 0;    //
  double optimizer = 0;  // kernels and gathers
};

// Idle share of the pipeline phase by the schedule alone, mean over stages: the schedule itself with the
// kernels' times and free communication, as the simulator has it.
double bubble_fraction(const parallel::Layout& layout, const std::vector<StageCost>& stages) {
  parallel::PassSeconds seconds;
  double kernels = 0;
  for (int chunk = 0; chunk < layout.virtual_stages(); ++chunk) {
    for (const StageCost& stage : stages) {
      seconds.forward.push_back(stage.forward[static_cast<size_t>(chunk)].kernels);
      seconds.backward.push_back(stage.backward[static_cast<size_t>(chunk)].kernels);
      kernels += layout.micro_batches() * (seconds.forward.back() + seconds.backward.back());
    }
  }
  const double window = parallel::pipeline_window(layout.schedule(), seconds);
  return std::max(0.0, 1 - kernels / (layout.stages() * window));
}

// Means over stages; bubble is what is left, imbalance of the stages included.
cost::StepSplit split_of(const parallel::Layout& layout, const std::vector<StageCost>& stages, double seconds,
                         double exposed_messages, const Tail& tail) {
  const double m = layout.micro_batches();
  const double p = layout.stages();
  cost::StepSplit split;
  double reduce_tp = 0, adamw = 0, norm_dp = 0;
  for (const StageCost& stage : stages) {
    split.data += stage.load / p;
    split.compute += m * stage.kernels() / p;
    split.tp += (m * (stage.work() - stage.kernels()) + sum(stage.reduce_tp) + stage.norm_tp) / p;
    split.optimizer += (stage.norm_kernel + sum(stage.adamw)) / p;
    reduce_tp += sum(stage.reduce_tp) / p;
    adamw += sum(stage.adamw) / p;
    norm_dp += stage.norm_dp / p;
  }
  split.pp = exposed_messages + tail.norm_pp;
  split.dp = std::max(0.0, tail.reduced - reduce_tp) + norm_dp + tail.optimizer - adamw;
  split.bubble = std::max(0.0, seconds - split.total());  // below 0 by rounding alone
  return split;
}

}  // namespace

StepTime step_time(const parallel::Layout& layout) {
  const cost::OpPrices prices(layout.run());
  const std::vector<StageCost> stages = stage_costs(layout, prices);
  const PipelineShape shape = pipeline_shape(layout, stages);
  PipelineShape no_messages = shape;
  no_messages.message = 0;
  const double window = pipeline_seconds(shape);

  // A stage ends its last backward before the first one does, by the way the last gradient still goes.
  Tail tail;
  tail.norm_pp = stages.front().norm_pp;
  double way_to_first = 0;
  for (const StageCost& stage : stages) {
    const double reduction = sum(stage.reduce_tp) + exposed_reduction(stage, shape);
    tail.reduced = std::max(tail.reduced, reduction - way_to_first);
    way_to_first += stage.backward.front().seconds() + stage.message;
    tail.norm = std::max(tail.norm, stage.norm_kernel + stage.norm_dp + stage.norm_tp);
    tail.optimizer = std::max(tail.optimizer, optimizer_seconds(stage));
  }
  StepTime time;
  time.seconds = stages.front().load + window + tail.reduced + tail.norm + tail.norm_pp + tail.optimizer;
  time.split = split_of(layout, stages, time.seconds, window - pipeline_seconds(no_messages), tail);
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
