#include "plan/hidden_collectives.hpp"

#include <algorithm>

namespace lockstep::plan {

namespace {

// Share of a chunk's backwards that follow a backward at once, with no forward between: those after the last
// forward, where several chunks or GPipe leave no gaps.
double share_back_to_back(const Overlap& o) {
  const double stages = o.stages, chunks = o.chunks, m = o.micro_batches;
  if (o.stages == 1) return (chunks - 1) / chunks;
  if (o.schedule == config::ScheduleKind::gpipe) return 1;
  if (o.chunks == 1) return 0;
  return std::min(1.0, ((chunks - 1) * std::min(stages, m) + stages - 1) / (chunks * m));
}

double over(double seconds, double hidden_behind) { return std::max(0.0, seconds - hidden_behind); }

// How much longer a pass takes with collectives over dp_cp beside it throughout.
double longer_beside(const Contention& c, const BlockingCost& pass) {
  return pass.tp * (c.tp - 1) + pass.cp * (c.cp - 1) + pass.kernels * c.kernels;
}

// Seconds a micro-batch, forward and backward, by which the passes are slower beside `busy` seconds of
// collectives over dp_cp, and how many times as long these take.
struct Slowed {
  double seconds = 0;
  double pace = 1;
};
Slowed slowed(const Overlap& o, const ChunkCost& chunk, double busy) {
  const Contention& c = o.contention;
  const BlockingCost both = chunk.forward + chunk.backward();
  const double whole = both.seconds();
  if (whole <= 0) return {};
  Slowed out;
  out.pace += ((both.tp + both.tp_hidden) * (c.dp_beside_tp - 1) + both.cp * (c.dp_beside_cp - 1)) / whole;
  const double beside = std::min(1.0, busy * out.pace / whole);
  out.seconds = beside * longer_beside(c, both);
  if (o.stages > 1) {
    const double sending = std::min(1.0, 2 * o.message / whole);
    out.seconds += (1 - beside) * sending * both.kernels * c.kernels;
  }
  return out;
}

}  // namespace

Overlap overlap_of(const parallel::Layout& layout, const Contention& contention, double message) {
  return {layout.run().parallel.schedule,
          layout.stages(),
          layout.virtual_stages(),
          layout.micro_batches(),
          layout.scatters_every_micro_batch(),
          layout.gradients_persist(),
          layout.run().parallel.reshard_after_forward,
          message,
          contention};
}

HeldUp held_up(const Overlap& o, const ChunkCost& chunk, bool first) {
  const double m = o.micro_batches;
  const double forward = chunk.forward.seconds(), backward = chunk.backward().seconds();
  // Collectives a pass; the very first gather and the last reduction are at the step's ends.
  const double unshards = std::max(0.0, chunk.unshards - (first ? 1 : 0)) / m;
  const double scatters = (chunk.reductions - 1) / m;
  const Slowed slow = slowed(o, chunk, unshards * chunk.gather + scatters * chunk.reduce_dp);
  const double share = forward + backward > 0 ? forward / (forward + backward) : 0;
  HeldUp held{share * slow.seconds, (1 - share) * slow.seconds};
  if (unshards == 0 && scatters == 0) return held;
  const double to_forward = o.reshards_after_forward ? unshards / 2 : unshards;
  const double to_backward = unshards - to_forward;
  const double gather = chunk.gather * slow.pace, scatter = chunk.reduce_dp * slow.pace;
  const bool every_time = o.scatters_every_micro_batch;
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
  const double alone = share_back_to_back(o);
  held.forward += alone * warm_up + (1 - alone) * steady / 2;
  held.backward += alone * cool_down + (1 - alone) * steady / 2;
  if (!every_time && !o.gradients_persist && o.stages == 1 && !first) {
    held.backward += scatters * over(scatter, backward);  // the next chunk's reduction waits for it
  }
  return held;
}

ChunkTimes chunk_times(const Overlap& overlap, const ChunkCost& chunk, bool first, int count) {
  const HeldUp held = held_up(overlap, chunk, first);
  ChunkTimes times;
  times.count = count;
  times.forward = chunk.forward.seconds();
  times.backward_input = std::min(chunk.backward_input.seconds(), chunk.backward_seconds());
  times.backward_weight = chunk.backward_seconds() - times.backward_input;
  times.forward_held = held.forward;
  times.backward_held =
      held.backward + (chunk.reductions - 1) * chunk.reduce.seconds() / overlap.micro_batches;
  times.forward_beside = longer_beside(overlap.contention, chunk.forward);
  times.backward_beside = longer_beside(overlap.contention, chunk.backward());
  times.gathers_again = chunk.unshards > 0;
  times.gathers = chunk.unshards * chunk.gather;
  times.scatters = chunk.reductions * chunk.reduce_dp;
  times.reduce = chunk.reduce.seconds();
  times.reduce_dp = chunk.reduce_dp;
  times.gather_gradients = chunk.gather_gradients;
  times.sum_tied = chunk.sum_tied;
  times.update = chunk.update;
  times.gather = chunk.gather;
  return times;
}

}  // namespace lockstep::plan
