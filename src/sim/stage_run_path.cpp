// What a stage's run tells the critical path.
#include <algorithm>

#include "sim/stage_run.hpp"

namespace lockstep::sim {

void StageRun::path_on_tile(const Tile& tile, const PricedOp& op) {
  if (path_ == nullptr) return;
  const auto first = static_cast<size_t>(tile.first_lane);
  const PathKind kind = op.kind;
  if (op.way == Way::kernel) {
    for (size_t i = 0; i < clock_before_.size(); ++i) {
      path_->work(program_.stage(), first + i, kind, times_.clock[first + i] - clock_before_[i]);
    }
    return;
  }
  for (const std::vector<size_t>& group : groups_.of(tile, op.way)) {
    const size_t last = *std::max_element(
        group.begin(), group.end(), [&](size_t a, size_t b) { return clock_before_[a] < clock_before_[b]; });
    path_->meet(program_.stage(), first, group, last, kind, times_.clock[first + last] - clock_before_[last]);
  }
}

// The path to a collective's start, by row: that of the last of its group, who had it queued then, or whose
// stream was busy with the one before until then.
void StageRun::path_queued(const QueuedCollective* queued, const QueuedCollective* before) {
  if (path_ == nullptr) return;
  const LaneGrid& grid = *lanes_.grid;
  std::vector<PathState> states;
  for (int t = 0; t < grid.tp(); ++t) {
    const auto row = static_cast<size_t>(t);
    size_t last = static_cast<size_t>(grid.lane(t, 0));
    for (int c = 1; c < grid.columns(); ++c) {
      const auto lane = static_cast<size_t>(grid.lane(t, c));
      if (times_.clock[lane] > times_.clock[last]) last = lane;
    }
    if (before != nullptr && before->end[row] > times_.clock[last]) {
      states.push_back(
          PathBook::with(path_->queued(before)[row], PathKind::dp, before->end[row] - before->start[row]));
    } else {
      states.push_back(path_->at(program_.stage(), last));
    }
  }
  path_->put_queued(queued, std::move(states));
}

void StageRun::path_waited(const QueuedCollective& queued) {
  if (path_ == nullptr) return;
  for (const Tile& tile : lanes_.grid->tiles()) {
    for (int t = 0; t < lanes_.grid->tp(); ++t) {
      const auto row = static_cast<size_t>(t);
      const PathState state =
          PathBook::with(path_->queued(&queued)[row], PathKind::dp, queued.end[row] - queued.start[row]);
      const size_t first = tile.row(t);
      for (size_t lane = first; lane < first + static_cast<size_t>(tile.width); ++lane) {
        if (queued.end[row] > times_.clock[lane]) path_->set(program_.stage(), lane, state);
      }
    }
  }
}

void StageRun::path_sent(const MessageKey& key, const std::vector<double>& start,
                         const std::vector<double>& sent) {
  if (path_ == nullptr) return;
  sent_paths_.resize(start.size());
  for (size_t lane = 0; lane < start.size(); ++lane) {
    const bool waited = start[lane] > times_.clock[lane];  // for the lane's earlier messages
    const PathState& from = waited ? sent_paths_[lane] : path_->at(program_.stage(), lane);
    sent_paths_[lane] = PathBook::with(from, PathKind::pp, sent[lane] - start[lane]);
  }
  path_->put_message(key, sent_paths_);
}

void StageRun::path_arrived(const MessageKey& key, const std::vector<double>& arrival) {
  if (path_ == nullptr) return;
  const std::vector<PathState> states = path_->take_message(key);
  for (size_t lane = 0; lane < states.size(); ++lane) {
    if (arrival[lane] > times_.clock[lane]) path_->set(program_.stage(), lane, states[lane]);
  }
}

void StageRun::path_met(const Exchange::MeetingKey& place, const Exchange::Meeting& meeting) {
  if (path_ == nullptr) return;
  const std::vector<PathState>& states = path_->meeting(place);
  for (size_t lane = 0; lane < states.size(); ++lane) {
    path_->set(program_.stage(), lane, PathBook::with(states[lane], PathKind::pp, meeting.seconds[lane]));
  }
}

}  // namespace lockstep::sim
