#include "plan/hidden_collectives.hpp"

#include <algorithm>

namespace lockstep::plan {

namespace {

// Share of a chunk's backwards that follow a backward at once, with no forward between: those after the last
// forward, where several chunks or GPipe leave no gaps.
double share_back_to_back(const parallel::Layout& layout) {
  const double stages = layout.stages(), chunks = layout.virtual_stages(), m = layout.micro_batches();
  if (layout.stages() == 1) return (chunks - 1) / chunks;
  if (layout.run().parallel.schedule == config::ScheduleKind::gpipe) return 1;
  if (layout.virtual_stages() == 1) return 0;
  return std::min(1.0, ((chunks - 1) * std::min(stages, m) + stages - 1) / (chunks * m));
}

double over(double seconds, double hidden_behind) { return std::max(0.0, seconds - hidden_behind); }

HeldUp held_up_of(const parallel::Layout& layout, const ChunkCost& chunk, bool first) {
  const double m = layout.micro_batches();
  const double forward = chunk.forward.seconds(), backward = chunk.backward().seconds();
  const bool every_time = layout.scatters_every_micro_batch();
  // Collectives a pass; the very first gather and the last reduction are at the step's ends.
  const double unshards = std::max(0, chunk.unshards - (first ? 1 : 0)) / m;
  const double to_forward = layout.run().parallel.reshard_after_forward ? unshards / 2 : unshards;
  const double to_backward = unshards - to_forward;
  const double scatters = (chunk.reductions - 1) / m;
  const double gather = chunk.gather, scatter = chunk.reduce_dp;
  const double queued = every_time ? scatter : 0;  // before a gather that is queued behind a backward

  // Forwards alone; backwards alone; the two in turn. Each time: what waits for single collectives, or for
  // the stream that has more to do than the passes give it time for.
  const double warm_up = std::max(to_forward * over(gather, forward), over(to_forward * gather, forward));
  const double cool_down = std::max({scatters * (every_time ? over(scatter, backward) : 0),
                                     to_backward * over(gather + queued, backward),
                                     over(scatters * scatter + to_backward * gather, backward)});
  const double steady =
      std::max({scatters * (every_time ? over(scatter, forward + backward) : 0),
                to_forward * over(gather + queued, backward) + to_backward * over(gather, forward),
                over(scatters * scatter + unshards * gather, forward + backward)});
  const double alone = share_back_to_back(layout);
  HeldUp held{alone * warm_up + (1 - alone) * steady / 2, alone * cool_down + (1 - alone) * steady / 2};
  if (!every_time && !layout.gradients_persist() && layout.stages() == 1 && !first) {
    held.backward += scatters * over(scatter, backward);  // the next chunk's reduction waits for it
  }
  return held;
}

}  // namespace

std::vector<HeldUp> held_up(const parallel::Layout& layout, const StageCost& stage) {
  std::vector<HeldUp> held;
  for (const ChunkCost& chunk : stage.chunks) held.push_back(held_up_of(layout, chunk, held.empty()));
  return held;
}

double reduction_seconds(const StageCost& stage) {
  double seconds = 0;
  for (const ChunkCost& chunk : stage.chunks) seconds += chunk.reduce.seconds() + chunk.reduce_dp;
  return seconds;
}

double exposed_gather(const StageCost& stage, const PipelineShape& shape) {
  const int group = std::min(shape.stages(), shape.micro_batches);
  double exposed = 0, queue = 0, begins = 0;
  for (size_t c = 0; c < stage.chunks.size(); ++c) {
    queue += stage.chunks[c].gather;
    exposed = std::max(exposed, queue - begins);
    begins += forward_loop_seconds(shape, static_cast<int>(c), group);
  }
  return exposed;
}

double exposed_reduction(const StageCost& stage, const PipelineShape& shape) {
  const int group = std::min(shape.stages(), shape.micro_batches);
  double blocking = 0, exposed = 0, queue = 0, before_end = 0;
  for (size_t c = 0; c < stage.chunks.size(); ++c) {
    blocking += stage.chunks[c].reduce.seconds();
    queue += stage.chunks[c].reduce_dp;
    exposed = std::max(exposed, queue - before_end);
    before_end += backward_loop_seconds(shape, static_cast<int>(c), group);
  }
  return blocking + exposed;
}

}  // namespace lockstep::plan
