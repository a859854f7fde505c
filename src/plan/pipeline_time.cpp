#include "plan/pipeline_time.hpp"

#include <algorithm>

namespace lockstep::plan {

namespace {

const ChunkTimes& chunk_at(const StageTimes& stage, int chunk) {
  const ChunkTimes* times = stage.chunks.data();
  while (chunk >= times->count) chunk -= (times++)->count;
  return *times;
}

// One direction of one chunk, over stages.
struct OverStages {
  double sum = 0;         // from its input to the last stage's output
  double longest = 0;     // that a stage is busy
  double beside = 0;      // how much longer `sum` is with collectives over dp_cp beside every pass
  double collective = 0;  // the longest that begins with each group's passes
};

OverStages forwards(const StepShape& p, int chunk) {
  OverStages t;
  for (const StageTimes& stage : p.of_stage) {
    const ChunkTimes& times = chunk_at(stage, chunk);
    t.sum += stage.count * times.forward;
    t.beside += stage.count * times.forward_beside;
    t.longest = std::max(t.longest, times.forward + times.forward_held);
    if (times.gathers_again) t.collective = std::max(t.collective, times.gather);
  }
  return t;
}
OverStages backwards(const StepShape& p, int chunk) {
  OverStages t;
  for (const StageTimes& stage : p.of_stage) {
    const ChunkTimes& times = chunk_at(stage, chunk);
    t.sum += stage.count * times.backward();
    t.beside += stage.count * times.backward_beside;
    t.longest = std::max(t.longest, times.backward() + times.backward_held);
    if (times.gathers_again) t.collective = std::max(t.collective, times.gather);
    if (p.overlaps_gradients) t.collective = std::max(t.collective, times.reduce_dp);
  }
  return t;
}

// By how much the one micro-batch is later, through all stages, whose pass stands on every stage beside the
// gather of the next chunk or the scatter of the one before. The collective begins in the gap that the stage
// waits for that micro-batch, and the gap is the longer the later this is: with p stages, groups of g, passes
// of f that take e more beside it, messages of n and a collective of G, x = e (G - gap) / f later at each
// stage, gap = (p - g) f + p n + (p - 1) x.
double later_beside(const StepShape& p, const OverStages& t, int group) {
  if (t.beside <= 0) return 0;
  const double pass = t.sum / p.stages, most = t.beside / p.stages;
  const double gap = (p.stages - group) * pass + p.stages * p.message;
  const double each = most * (t.collective - gap) / (pass + (p.stages - 1) * most);
  return p.stages * std::clamp(each, 0.0, most);
}

// How long after a group's passes of one chunk begin, its passes of the next one can: when a micro-batch is
// through all stages and back, or the busiest stage is free.
double loop_seconds(const StepShape& p, const OverStages& t) {
  const int group = std::min(p.stages, p.micro_batches);
  return std::max(t.sum + later_beside(p, t, group) + p.stages * p.message, group * t.longest);
}

// How many chunks from `chunk` on are alike on every stage.
int alike(const StepShape& p, int chunk) {
  int least = p.chunks - chunk;
  for (const StageTimes& stage : p.of_stage) {
    int end = 0;
    for (const ChunkTimes* times = stage.chunks.data(); end <= chunk; ++times) end += times->count;
    least = std::min(least, end - chunk);
  }
  return least;
}

// All forwards, then all backwards: each goes through the stages at the pace of the slowest stage or link.
double gpipe_seconds(const StepShape& p) {
  const double fill = (p.stages - 1) * p.message;
  const auto one_way = [&](const OverStages& t) {
    return t.sum + fill + (p.micro_batches - 1) * std::max(t.longest, p.message);
  };
  return one_way(forwards(p, 0)) + one_way(backwards(p, 0));
}

// What lets micro-batches through one after another, beyond the first one. `halves`: the gradients of weights
// do not stand in the way of others.
struct Loops {
  double through = 0;  // of the first micro-batch, all stages and back
  double bound = 0;    // of the others
};
Loops loops(const StepShape& p, int chunk, int micro_batches, bool halves) {
  Loops out;
  double longest_pass = 0;
  int under_way = 0;
  // Stage s has p - s micro-batches under way: their loop is from its forward through all later stages and
  // back to its backward.
  const auto bound = [&](int turns, double loop, int under) {
    const int rest = micro_batches - 1 - turns * under;
    out.bound = std::max(out.bound, turns * loop + rest * longest_pass);
  };
  for (size_t s = p.of_stage.size(); s-- > 0;) {
    const StageTimes& stage = p.of_stage[s];
    const ChunkTimes& times = chunk_at(stage, chunk);
    const double back = halves ? times.backward_input : times.backward();
    const double own = times.forward + back;
    longest_pass = std::max(
        {longest_pass, times.forward + times.forward_held, back + (halves ? 0 : times.backward_held)});
    out.through += own + (under_way > 0 ? 2 * p.message : 0);
    ++under_way;
    bound((micro_batches - 1) / under_way, out.through, under_way);
    if (stage.count == 1) continue;
    // Of stages that are alike the longest bound is at an end, or where one turn more just fits.
    const double first = out.through;
    const int least = under_way;
    under_way += stage.count - 1;
    out.through += (stage.count - 1) * (own + 2 * p.message);
    const int turns = (micro_batches - 1) / under_way;
    bound(turns, out.through, under_way);
    const int fits = (micro_batches - 1) / (turns + 1);
    if (fits > least) bound(turns + 1, first + (fits - least) * (own + 2 * p.message), fits);
  }
  return out;
}

double turn_seconds(const ChunkTimes& t) {
  return t.forward + t.forward_held + t.backward() + t.backward_held;
}

// One chunk a stage, the chunk `chunk`.
double one_f_one_b_seconds(const StepShape& p, int chunk, int micro_batches) {
  const Loops l = loops(p, chunk, micro_batches, false);
  double longest_turn = 0;
  for (const StageTimes& stage : p.of_stage) {
    longest_turn = std::max(longest_turn, turn_seconds(chunk_at(stage, chunk)));
  }
  return l.through + std::max(l.bound, (micro_batches - 1) * longest_turn);
}

// Stage s computes p - s forwards, waits for its first gradient, and is busy from then on: weight gradients
// fill what would be idle. After its last input gradient it has s + 1 of them left, while that gradient goes
// on to the first stage.
double zero_bubble_seconds(const StepShape& p) {
  const Loops l = loops(p, 0, p.micro_batches, true);
  const double first_weight = p.of_stage.front().chunks.front().backward_weight;
  double longest = l.through + l.bound + first_weight;
  double fill = 0, back = 0, through = l.through;
  int before = 0;
  const auto stage_end = [&](const ChunkTimes& t) {
    const int ahead = std::min(p.stages - before, p.micro_batches),
              left = std::min(before + 1, p.micro_batches);
    const double first_gradient = through - t.backward_input;  // after the stage's first forward began
    const double idle = std::max(0.0, first_gradient - ahead * (t.forward + t.forward_held));
    const double end = fill + idle + p.micro_batches * turn_seconds(t);
    longest = std::max({longest, end, end - left * t.backward_weight + back + first_weight});
  };
  for (const StageTimes& stage : p.of_stage) {
    const ChunkTimes& t = stage.chunks.front();
    stage_end(t);
    const auto go_on = [&](int stages) {
      fill += stages * (t.forward + p.message);
      back += stages * (t.backward_input + p.message);
      through -= stages * (t.forward + t.backward_input + 2 * p.message);
      before += stages;
    };
    if (stage.count > 1) {
      go_on(stage.count - 1);
      stage_end(t);
    }
    go_on(1);
  }
  return longest;
}

// That a micro-batch keeps a stage busy, all chunks, both ways.
double busy_seconds(const StageTimes& stage) {
  double seconds = 0;
  for (const ChunkTimes& chunk : stage.chunks) seconds += chunk.count * turn_seconds(chunk);
  return seconds;
}

// Of one more micro-batch through a pipeline of several chunks: the busiest stage; or the chunks' passes,
// each at the pace of the stage on which it is the slowest.
double further_seconds(const StepShape& p) {
  double busiest = 0, slowest_chunks = 0;
  for (const StageTimes& stage : p.of_stage) busiest = std::max(busiest, busy_seconds(stage));
  for (int c = 0; c < p.chunks;) {
    const int width = alike(p, c);
    double slowest = 0;
    for (const StageTimes& stage : p.of_stage) {
      const ChunkTimes& times = chunk_at(stage, c);
      slowest = std::max(slowest, times.forward + times.backward());
    }
    slowest_chunks += width * slowest;
    c += width;
  }
  return std::max(busiest, slowest_chunks);
}

// Several chunks a stage. Groups of up to p micro-batches go through chunk after chunk; a group's next chunk
// starts when its first micro-batch is through all stages and the way back to the first one, or when the
// stage is free, whichever is later. Between the first chunk's start and the last one's turn to backward that
// happens for all chunks but the last; the last chunk turns like 1F1B. Further groups keep each chunk's
// slowest stage busy; a last group of fewer micro-batches takes as many slots, but for the turn.
double interleaved_seconds(const StepShape& p) {
  const int group = std::min(p.stages, p.micro_batches);
  double seconds = 0;
  for (int c = 0; c + 1 < p.chunks;) {
    const int width = std::min(alike(p, c), p.chunks - 1 - c);
    seconds += width * (loop_seconds(p, forwards(p, c)) + loop_seconds(p, backwards(p, c)));
    c += width;
  }
  const int groups = (p.micro_batches + group - 1) / group;
  const double further = groups > 1 ? further_seconds(p) : 0;
  return seconds + one_f_one_b_seconds(p, p.chunks - 1, p.micro_batches - (groups - 1) * group) +
         (groups - 1) * group * further;
}

// Seconds from a stage's last backward until its last reductions are through. Chunks end in descending order,
// each some time before the next; scatters queue up behind one another.
double exposed_reduction(const StepShape& p, const StageTimes& stage) {
  double blocking = 0, exposed = 0, queue = 0, before_end = 0;
  for (int c = 0; c < p.chunks;) {
    const ChunkTimes& times = chunk_at(stage, c);
    const int width = p.chunks == 1 ? 1 : alike(p, c);
    const double loop = p.chunks == 1 ? 0 : loop_seconds(p, backwards(p, c));
    exposed = std::max(exposed, queue + times.reduce_dp - before_end);
    blocking += width * times.reduce;
    queue += width * times.reduce_dp;
    before_end += (width - 1) * loop;
    exposed = std::max(exposed, queue - before_end);
    before_end += loop;
    c += width;
  }
  return blocking + exposed;
}

// The same where no reduction begins before.
double reduction_seconds(const StageTimes& stage) {
  double seconds = 0;
  for (const ChunkTimes& chunk : stage.chunks) seconds += chunk.count * (chunk.reduce + chunk.reduce_dp);
  return seconds;
}

// Seconds for which the first stage's forwards wait for parameters that are gathered from the step's start
// on: each chunk's, one after another, before its first forward.
double exposed_gather(const StepShape& p) {
  double exposed = 0, queue = 0, begins = 0;
  for (int c = 0; c < p.chunks; ++c) {
    queue += chunk_at(p.of_stage.front(), c).gather;
    exposed = std::max(exposed, queue - begins);
    begins += loop_seconds(p, forwards(p, c));
  }
  return exposed;
}

// Optimizer kernels one after another, each chunk's parameters gathered beside the next ones' kernels.
double optimizer_seconds(const StageTimes& stage, bool gathers) {
  double kernels = 0, stream = 0;
  for (const ChunkTimes& chunk : stage.chunks) {
    const double gather = gathers ? chunk.gather : 0;
    const double first = std::max(stream, kernels + chunk.update) + chunk.count * gather;
    kernels += chunk.count * chunk.update;
    stream = std::max(first, kernels + gather);
  }
  return std::max(stream, kernels);
}

// By the passes alone.
double passes_seconds(const StepShape& p) {
  // One stage has nothing to wait for, whatever the schedule.
  if (p.stages == 1) return busy_seconds(p.of_stage.front()) * p.micro_batches;
  if (p.chunks > 1) return interleaved_seconds(p);
  if (p.schedule == config::ScheduleKind::gpipe) return gpipe_seconds(p);
  if (p.schedule == config::ScheduleKind::zero_bubble_h1) return zero_bubble_seconds(p);
  return one_f_one_b_seconds(p, 0, p.micro_batches);
}

// From the first forward until the first micro-batch is through the last chunk of all stages.
double first_forwards(const StepShape& p) {
  double seconds = 0;
  for (int c = 0; c + 1 < p.chunks;) {
    const int width = std::min(alike(p, c), p.chunks - 1 - c);
    seconds += width * loop_seconds(p, forwards(p, c));
    c += width;
  }
  const OverStages last = forwards(p, p.chunks - 1);
  const bool all_first = p.schedule == config::ScheduleKind::gpipe && p.stages > 1;
  return seconds + last.sum + (p.stages - 1) * p.message +
         (all_first ? (p.micro_batches - 1) * last.longest : 0);
}

// How long after a stage's first input gradient its first gradients of weights begin: at once, but for
// zero-bubble H1, where stage s (from 0) computes s further input gradients, and forwards between, before.
double before_first_weights(const StepShape& p, int stage, double longest_turn) {
  if (p.schedule != config::ScheduleKind::zero_bubble_h1) return 0;
  return (std::min(stage + 1, p.micro_batches) - 1) * longest_turn;
}

// From the first forward to the last reduction: a stage's gathers and scatters follow one another, and the
// first scatter the first backward.
double stream_seconds(const StepShape& p) {
  double longest = 0, gradient = first_forwards(p), longest_turn = 0;
  for (const StageTimes& stage : p.of_stage) {
    const ChunkTimes& last = chunk_at(stage, p.chunks - 1);
    longest_turn = std::max(longest_turn, last.forward + last.backward_input);
  }
  const bool halves = p.schedule == config::ScheduleKind::zero_bubble_h1;
  int stage_after = p.stages;
  for (size_t s = p.of_stage.size(); s-- > 0;) {
    const StageTimes& stage = p.of_stage[s];
    double gathers = 0, scatters = 0;
    for (const ChunkTimes& chunk : stage.chunks) {
      gathers += chunk.count * chunk.gathers;
      scatters += chunk.count * chunk.scatters;
    }
    longest = std::max(longest, gathers - stage.chunks.front().gather + scatters);
    const ChunkTimes& last = chunk_at(stage, p.chunks - 1);
    const double back = halves ? last.backward_input : last.backward(),
                 weight = halves ? last.backward_weight : 0;
    // Of stages that are alike the first or the last is the latest.
    const auto latest = [&](int index, double first_gradient) {
      if (scatters == 0) return;
      const double first_scatter = first_gradient + before_first_weights(p, index, longest_turn) + weight;
      longest = std::max(longest, first_scatter + scatters);
    };
    latest(stage_after - 1, gradient + back);
    gradient += stage.count * (back + p.message);
    stage_after -= stage.count;
    latest(stage_after, gradient - p.message);
  }
  return longest;
}

// Whether stream_seconds may exceed the passes and what of the reductions comes after them. Cheaper: after a
// stage's first backward all its others still come, and hide as much of the scatters.
bool stream_may_last_longer(const StepShape& p, double passes, double reduced) {
  if (p.schedule == config::ScheduleKind::zero_bubble_h1) return true;
  for (const StageTimes& stage : p.of_stage) {
    double gathers = 0, scatters = 0, backwards = 0;
    for (const ChunkTimes& chunk : stage.chunks) {
      gathers += chunk.count * chunk.gathers;
      scatters += chunk.count * chunk.scatters;
      backwards += chunk.count * chunk.backward();
    }
    const double others = p.micro_batches * backwards - chunk_at(stage, p.chunks - 1).backward();
    if (scatters - reduced > others || gathers + scatters - reduced > passes) return true;
  }
  return false;
}

double window_seconds(const StepShape& p, const StepEnds& ends) {
  const double passes = passes_seconds(p);
  if (!p.overlaps_gradients || !stream_may_last_longer(p, passes, ends.reduced.longest)) return passes;
  return std::max(passes, stream_seconds(p) - ends.reduced.longest);
}

}  // namespace

double pipeline_seconds(const StepShape& p) { return window_seconds(p, step_ends(p)); }

double step_seconds(const StepShape& p) {
  const StepEnds ends = step_ends(p);
  return window_seconds(p, ends) + ends.total();
}

StepEnds step_ends(const StepShape& p) {
  StepEnds ends;
  const StageTimes& first = p.of_stage.front();
  ends.load = first.load;
  if (p.zero_3) ends.first_gather = first.chunks.front().gather;
  if (p.gathers_at_start) ends.first_gather = exposed_gather(p);
  ends.norm_pp = first.norm_pp;
  const bool halves = p.schedule == config::ScheduleKind::zero_bubble_h1;
  // A stage ends its last backward before the first one does, by the way the last gradient still goes. (With
  // halves some later, by what weights it has left: left out.)
  double way_to_first = 0;
  for (const StageTimes& stage : p.of_stage) {
    const ChunkTimes& chunk = stage.chunks.front();
    const double reduction = p.overlaps_gradients ? exposed_reduction(p, stage) : reduction_seconds(stage);
    const double share = stage.count / static_cast<double>(p.stages);
    ends.reduced.take(reduction - way_to_first, share);
    ends.reducing += share * reduction;
    way_to_first += stage.count * ((halves ? chunk.backward_input : chunk.backward()) + p.message);
    double gathered = 0, tied = 0;
    for (const ChunkTimes& c : stage.chunks) {
      gathered += c.count * c.gather_gradients;
      tied += c.count * c.sum_tied;
    }
    ends.gathered.take(gathered, share);
    ends.tied = std::max(ends.tied, tied);
    ends.norm = std::max(ends.norm, stage.norm);
    ends.optimizer.take(optimizer_seconds(stage, p.gathers_after_update), share);
  }
  return ends;
}

}  // namespace lockstep::plan
