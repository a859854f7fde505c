#include "sim/critical_path.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockstep::sim {

PathKind transfer_kind(model::Axis axis) {
  switch (axis) {
    case model::Axis::tp:
    case model::Axis::tp_kv:
      return PathKind::tp;
    case model::Axis::cp:
      return PathKind::cp;
    case model::Axis::pp:
    case model::Axis::pp_ends:
      return PathKind::pp;
    case model::Axis::dp:
    case model::Axis::dp_cp:
      return PathKind::dp;
    case model::Axis::none:
      break;
  }
  throw std::invalid_argument("no transfer is along no axis");
}

PathBook::PathBook(std::vector<std::vector<int>> ranks) : ranks_(std::move(ranks)) {
  for (const auto& of_stage : ranks_) lanes_.emplace_back(of_stage.size());
}

PathState PathBook::with(PathState state, PathKind kind, double seconds) {
  state.seconds[static_cast<size_t>(kind)] += seconds;
  return state;
}

void PathBook::work(int stage, size_t lane, PathKind kind, double seconds) {
  const auto s = static_cast<size_t>(stage);
  PathState& state = lanes_[s][lane];
  const int rank = ranks_[s][lane];
  if (state.rank != rank) {
    if (state.rank >= 0 && state.since > 0) {
      earlier_.push_back({state.earlier, state.rank, state.since});
      state.earlier = static_cast<int>(earlier_.size()) - 1;
    }
    state.rank = rank;
    state.since = 0;
  }
  state.seconds[static_cast<size_t>(kind)] += seconds;
  state.since += seconds;
  if (earlier_.size() > most_earlier_) collect_garbage();
}

void PathBook::meet(int stage, size_t first, const std::vector<size_t>& lanes, size_t last, PathKind kind,
                    double seconds) {
  std::vector<PathState>& states = lanes_[static_cast<size_t>(stage)];
  const PathState state = with(states[first + last], kind, seconds);
  for (const size_t lane : lanes) states[first + lane] = state;
}

std::vector<PathState> PathBook::take_message(const MessageKey& key) {
  const auto found = messages_.find(key);
  std::vector<PathState> out = std::move(found->second);
  messages_.erase(found);
  return out;
}

void PathBook::put_queued(const QueuedCollective* queued, std::vector<PathState> states) {
  queued_[queued] = std::move(states);
}

void PathBook::enter(const Exchange::MeetingKey& key, int stage, const std::vector<double>& clock) {
  Meeting& m = meetings_[key];
  const std::vector<PathState>& states = lanes_[static_cast<size_t>(stage)];
  if (m.latest.empty()) {
    m = {clock, states};
    return;
  }
  for (size_t lane = 0; lane < clock.size(); ++lane) {
    if (clock[lane] <= m.latest[lane]) continue;
    m.latest[lane] = clock[lane];
    m.states[lane] = states[lane];
  }
}

const std::vector<PathState>& PathBook::meeting(const Exchange::MeetingKey& key) const {
  return meetings_.at(key).states;
}

CriticalPath PathBook::path_of(int stage, size_t lane) const {
  const PathState& state = at(stage, lane);
  CriticalPath path;
  path.seconds = state.seconds;
  std::map<int, double> by_rank;
  if (state.rank >= 0) by_rank[state.rank] += state.since;
  for (int i = state.earlier; i >= 0; i = earlier_[static_cast<size_t>(i)].before) {
    by_rank[earlier_[static_cast<size_t>(i)].rank] += earlier_[static_cast<size_t>(i)].seconds;
  }
  for (const auto& [rank, seconds] : by_rank) path.ranks.push_back({rank, seconds});
  std::stable_sort(path.ranks.begin(), path.ranks.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return path;
}

// Drops the chains that no state leads to any more: paths of ranks that nobody waited for. What is left is
// few, because paths that meet go on as one.
void PathBook::collect_garbage() {
  std::vector<std::vector<PathState>*> all;
  for (auto& states : lanes_) all.push_back(&states);
  for (auto& [key, states] : messages_) all.push_back(&states);
  for (auto& [key, states] : queued_) all.push_back(&states);
  for (auto& [key, meeting] : meetings_) all.push_back(&meeting.states);

  std::vector<bool> kept(earlier_.size(), false);
  for (const auto* states : all) {
    for (const PathState& state : *states) {
      for (int i = state.earlier; i >= 0 && !kept[static_cast<size_t>(i)];
           i = earlier_[static_cast<size_t>(i)].before) {
        kept[static_cast<size_t>(i)] = true;
      }
    }
  }
  std::vector<int> place(earlier_.size(), -1);
  std::vector<Earlier> fewer;
  for (size_t i = 0; i < earlier_.size(); ++i) {
    if (!kept[i]) continue;
    place[i] = static_cast<int>(fewer.size());
    Earlier one = earlier_[i];
    if (one.before >= 0) one.before = place[static_cast<size_t>(one.before)];  // stands before it
    fewer.push_back(one);
  }
  for (auto* states : all) {
    for (PathState& state : *states) {
      if (state.earlier >= 0) state.earlier = place[static_cast<size_t>(state.earlier)];
    }
  }
  earlier_ = std::move(fewer);
  most_earlier_ = std::max<size_t>(1 << 20, 2 * earlier_.size());
}

}  // namespace lockstep::sim
