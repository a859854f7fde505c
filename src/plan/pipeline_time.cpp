#include "plan/pipeline_time.hpp"

#include <algorithm>

namespace lockstep::plan {

namespace {

// Over stages, of one chunk.
struct ChunkTimes {
  double sum = 0;
  double longest = 0;
};

ChunkTimes over_stages(const std::vector<std::vector<double>>& passes, int chunk) {
  ChunkTimes t;
  for (const auto& stage : passes) {
    t.sum += stage[static_cast<size_t>(chunk)];
    t.longest = std::max(t.longest, stage[static_cast<size_t>(chunk)]);
  }
  return t;
}

// All forwards, then all backwards: each goes through the stages at the pace of the slowest stage or link.
double gpipe_seconds(const PipelineShape& p) {
  const double fill = (p.stages() - 1) * p.message;
  const auto one_way = [&](const std::vector<std::vector<double>>& passes) {
    const ChunkTimes t = over_stages(passes, 0);
    const double pace = p.stages() > 1 ? std::max(t.longest, p.message) : t.longest;
    return t.sum + fill + (p.micro_batches - 1) * pace;
  };
  return one_way(p.forward) + one_way(p.backward);
}

// One chunk a stage. Stage s has p - s micro-batches under way: their loop is from its forward through all
// later stages and back to its backward.
double one_f_one_b_seconds(const PipelineShape& p) {
  const int stages = p.stages();
  double loop = 0, longest_pass = 0, longest_turn = 0;
  std::vector<double> bounds;
  for (int s = stages - 1; s >= 0; --s) {
    const double f = p.forward[static_cast<size_t>(s)][0];
    const double b = p.backward[static_cast<size_t>(s)][0];
    if (s < stages - 1) loop += 2 * p.message;
    loop += f + b;
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

// Several chunks a stage. Groups of up to p micro-batches go through chunk after chunk; a group's next chunk
// starts when its first micro-batch is through all stages and the way back to the first one, or when the
// stage is free, whichever is later. Between the first chunk's start and the last one's turn to backward that
// happens for all chunks but the last; the last chunk turns like 1F1B. Further groups keep the busiest stage
// busy; a last group of fewer micro-batches takes as many slots, but for the turn.
double interleaved_seconds(const PipelineShape& p) {
  const int group = std::min(p.stages(), p.micro_batches);
  double seconds = 0;
  for (int c = 0; c + 1 < p.chunks(); ++c) {
    seconds += chunk_loop_seconds(p.forward, c, group, p.message);
    seconds += chunk_loop_seconds(p.backward, c, group, p.message);
  }
  const int groups = (p.micro_batches + group - 1) / group;
  PipelineShape turn = p;
  turn.micro_batches = p.micro_batches - (groups - 1) * group;
  double busiest = 0;
  for (size_t s = 0; s < p.forward.size(); ++s) {
    turn.forward[s] = {p.forward[s].back()};
    turn.backward[s] = {p.backward[s].back()};
    double work = 0;
    for (size_t c = 0; c < p.forward[s].size(); ++c) work += p.forward[s][c] + p.backward[s][c];
    busiest = std::max(busiest, work);
  }
  return seconds + one_f_one_b_seconds(turn) + (groups - 1) * group * busiest;
}

}  // namespace

double chunk_loop_seconds(const std::vector<std::vector<double>>& passes, int chunk, int group,
                          double message) {
  const ChunkTimes t = over_stages(passes, chunk);
  return std::max(t.sum + static_cast<double>(passes.size()) * message, group * t.longest);
}

double pipeline_seconds(const PipelineShape& p) {
  // One stage has nothing to wait for, whatever the schedule.
  if (p.stages() > 1 && p.chunks() > 1) return interleaved_seconds(p);
  if (p.stages() > 1 && p.schedule == config::ScheduleKind::gpipe) return gpipe_seconds(p);
  double seconds = 0;
  if (p.stages() > 1) return one_f_one_b_seconds(p);
  for (size_t c = 0; c < p.forward[0].size(); ++c) seconds += p.forward[0][c] + p.backward[0][c];
  return seconds * p.micro_batches;
}

}  // namespace lockstep::plan
