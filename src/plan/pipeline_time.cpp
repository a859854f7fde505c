#include "plan/pipeline_time.hpp"

#include <algorithm>

namespace lockstep::plan {

namespace {

using ByStage = std::vector<std::vector<double>>;

double at(const ByStage& seconds, size_t stage, size_t chunk) {
  return seconds.empty() ? 0 : seconds[stage][chunk];
}

// Over stages, of one chunk.
struct ChunkTimes {
  double sum = 0;      // from its input to the last stage's output
  double longest = 0;  // that a stage is busy
};

ChunkTimes over_stages(const ByStage& passes, const ByStage& held, int chunk) {
  ChunkTimes t;
  const auto c = static_cast<size_t>(chunk);
  for (size_t s = 0; s < passes.size(); ++s) {
    t.sum += passes[s][c];
    t.longest = std::max(t.longest, passes[s][c] + at(held, s, c));
  }
  return t;
}

// Of one direction.
double chunk_loop_seconds(const PipelineShape& p, const ByStage& passes, const ByStage& held, int chunk,
                          int group) {
  const ChunkTimes t = over_stages(passes, held, chunk);
  return std::max(t.sum + p.stages() * p.message, group * t.longest);
}

// All forwards, then all backwards: each goes through the stages at the pace of the slowest stage or link.
double gpipe_seconds(const PipelineShape& p) {
  const double fill = (p.stages() - 1) * p.message;
  const auto one_way = [&](const ByStage& passes, const ByStage& held) {
    const ChunkTimes t = over_stages(passes, held, 0);
    const double pace = p.stages() > 1 ? std::max(t.longest, p.message) : t.longest;
    return t.sum + fill + (p.micro_batches - 1) * pace;
  };
  return one_way(p.forward, p.forward_held) + one_way(p.backward, p.backward_held);
}

// One chunk a stage. Stage s has p - s micro-batches under way: their loop is from its forward through all
// later stages and back to its backward.
double one_f_one_b_seconds(const PipelineShape& p) {
  const int stages = p.stages();
  double loop = 0, longest_pass = 0, longest_turn = 0;
  std::vector<double> bounds;
  for (int s = stages - 1; s >= 0; --s) {
    const auto stage = static_cast<size_t>(s);
    if (s < stages - 1) loop += 2 * p.message;
    loop += p.forward[stage][0] + p.backward[stage][0];
    const double f = p.forward[stage][0] + at(p.forward_held, stage, 0);
    const double b = p.backward[stage][0] + at(p.backward_held, stage, 0);
    longest_pass = std::max({longest_pass, f, b});
    longest_turn = std::max(longest_turn, f + b);
    const int under_way = stages - s;
    const int turns = (p.micro_batches - 1) / under_way;
    const int rest = (p.micro_batches - 1) % under_way;
    bounds.push_back(turns * loop + rest * longest_pass);
  }
  const double through = loop;  // of one micro-batch, all stages
  double bound = (p.micro_batches - 1) * longest_turn;
  for (const double b : bounds) bound = std::max(bound, b);
  return through + bound;
}

// That a micro-batch keeps a stage busy, all chunks, both ways.
double busy_seconds(const PipelineShape& p, size_t stage) {
  double seconds = 0;
  for (size_t c = 0; c < p.forward[stage].size(); ++c) {
    seconds += p.forward[stage][c] + p.backward[stage][c];
    seconds += at(p.forward_held, stage, c) + at(p.backward_held, stage, c);
  }
  return seconds;
}

// Several chunks a stage. Groups of up to p micro-batches go through chunk after chunk; a group's next chunk
// starts when its first micro-batch is through all stages and the way back to the first one, or when the
// stage is free, whichever is later. Between the first chunk's start and the last one's turn to backward that
// happens for all chunks but the last; the last chunk turns like 1F1B. Further groups keep the busiest stage
// busy; a last group of fewer micro-batches takes as many slots, but for the turn.
double interleaved_seconds(const PipelineShape& p) {
  const int group = std::min(p.stages(), p.micro_batches);
  double seconds = 0;
  for (int c = 0; c + 1 < p.chunks(); ++c) {
    seconds += chunk_loop_seconds(p, p.forward, p.forward_held, c, group);
    seconds += chunk_loop_seconds(p, p.backward, p.backward_held, c, group);
  }
  const int groups = (p.micro_batches + group - 1) / group;
  PipelineShape turn = p;
  turn.micro_batches = p.micro_batches - (groups - 1) * group;
  for (ByStage* passes : {&turn.forward, &turn.backward, &turn.forward_held, &turn.backward_held}) {
    for (std::vector<double>& stage : *passes) stage = {stage.back()};
  }
  double busiest = 0;
  for (size_t s = 0; s < p.forward.size(); ++s) busiest = std::max(busiest, busy_seconds(p, s));
  return seconds + one_f_one_b_seconds(turn) + (groups - 1) * group * busiest;
}

}  // namespace

double backward_loop_seconds(const PipelineShape& p, int chunk, int group) {
  return chunk_loop_seconds(p, p.backward, p.backward_held, chunk, group);
}

double forward_loop_seconds(const PipelineShape& p, int chunk, int group) {
  return chunk_loop_seconds(p, p.forward, p.forward_held, chunk, group);
}

double pipeline_seconds(const PipelineShape& p) {
  // One stage has nothing to wait for, whatever the schedule.
  if (p.stages() > 1 && p.chunks() > 1) return interleaved_seconds(p);
  if (p.stages() > 1 && p.schedule == config::ScheduleKind::gpipe) return gpipe_seconds(p);
  if (p.stages() > 1) return one_f_one_b_seconds(p);
  return busy_seconds(p, 0) * p.micro_batches;
}

}  // namespace lockstep::plan
