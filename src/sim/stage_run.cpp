#include "sim/stage_run.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "sim/lane_loops.hpp"

namespace lockstep::sim {

namespace {

using Kind = parallel::ActionKind;

bool on_tile(Way way) { return way == Way::kernel || way == Way::tp || way == Way::tp_kv || way == Way::cp; }

int phase_of(Kind kind) {
  switch (kind) {
    case Kind::load_batch:
      return static_cast<int>(PhaseKind::data);
    case Kind::forward:
      return static_cast<int>(PhaseKind::forward);
    case Kind::backward:
    case Kind::backward_input:
    case Kind::backward_weight:
      return static_cast<int>(PhaseKind::backward);
    case Kind::gather_gradients:
    case Kind::sum_tied_gradients:
    case Kind::gradient_norm:
    case Kind::optimizer_step:
    case Kind::gather_parameters:
      return static_cast<int>(PhaseKind::optimizer);
    default:
      return -1;
  }
}

}  // namespace

void PhaseTimes::add(double from, double to) {
  start = std::min(start, from);
  end = std::max(end, to);
}

StageLanes one_lane(const LaneGrid& grid) {
  StageLanes one;
  one.grid = &grid;
  one.time_factor = {1.0};
  one.key_a = one.key_b = {0};
  return one;
}

StageRun::StageRun(const PricedProgram& program, const StageLanes& lanes, Exchange& exchange,
                   LaneTracer* tracer, PathBook* path)
    : program_(program),
      lanes_(lanes),
      exchange_(exchange),
      tracer_(tracer),
      path_(path),
      times_(exchange.lanes()),
      load_(*lanes.grid, lanes.transfers, lanes.communication_slowdown),
      groups_(*lanes.grid, lanes.kv_copies) {
  for (size_t i = 0; i < program.actions().size(); ++i) {
    const int phase = phase_of(program.actions()[i].action.kind);
    if (phase >= 0) phase_end_[static_cast<size_t>(phase)] = i;
  }
}

bool StageRun::advance() {
  bool moved = false;
  while (!done()) {
    const PricedAction& action = program_.actions()[at_];
    if (!begun_) {
      if (!begin_action(action)) return moved;
      begun_ = moved = true;
    }
    const size_t op_before = op_;
    const bool complete = run_ops(action);
    moved = moved || op_ != op_before;
    if (!complete) return moved;
    end_action(action);
    ++at_;
    op_ = 0;
    begun_ = false;
    moved = true;
  }
  return moved;
}

void StageRun::finish() {
  // A message that no pass needed still has to come.
  while (!posted_.empty()) {
    const PricedAction& receive = *posted_.begin()->second;
    if (!take_message(receive.action)) {
      throw RunError("stage " + std::to_string(program_.stage()) + ", " + parallel::describe(receive.action) +
                     ": is never sent");
    }
  }
  wait_for(load_.last().get());
}

std::string StageRun::where() const {
  return "stage " + std::to_string(program_.stage()) + ", " +
         parallel::describe(program_.actions()[at_].action);
}

bool StageRun::begin_action(const PricedAction& action) {
  const Kind kind = action.action.kind;
  if (parallel::is_receive(kind)) {
    const parallel::Action& a = action.action;
    if (!posted_.insert({{goes_forward(kind), a.chunk, a.micro_batch}, &action}).second) {
      throw RunError(where() + ": is posted twice");
    }
  }
  const bool takes_message = kind == Kind::forward || parallel::goes_back(kind);
  if (takes_message && !take_message(action.action)) return false;
  wait_for_streams(action);
  pause(action);
  note_phase_start(action);
  first_lane_start_ = times_.clock.front();
  if (action.host_seconds > 0) pass_start_ = times_.clock;
  return true;
}

// Waits for the posted message of the action's direction, chunk and micro-batch. False: it is not there yet.
bool StageRun::take_message(const parallel::Action& a) {
  const bool forward = goes_forward(a.kind);
  const auto receive = posted_.find({forward, a.chunk, a.micro_batch});
  if (receive == posted_.end()) return true;
  auto arrival = exchange_.take({program_.stage(), forward, a.chunk, a.micro_batch});
  if (!arrival.has_value()) return false;
  path_arrived({program_.stage(), forward, a.chunk, a.micro_batch}, *arrival);
  wait_until(times_.clock.data(), times_.message.data(), times_.clock.size(), {arrival->data(), 0});
  if (tracer_ != nullptr) {
    // A receive takes none of the rank's time: it shows as the moment of arrival.
    for (size_t i = 0; i < tracer_->lanes().size(); ++i) {
      const double when = (*arrival)[static_cast<size_t>(tracer_->lanes()[i].lane)];
      for (const PricedOp& op : *receive->second->ops) tracer_->record(i, when, when, *receive->second, op);
    }
  }
  exchange_.recycle(std::move(*arrival));
  posted_.erase(receive);
  return true;
}

void StageRun::wait_for(const QueuedCollective* queued) {
  if (queued == nullptr) return;
  path_waited(*queued);
  for (const Tile& tile : lanes_.grid->tiles()) {
    for (int row = 0; row < lanes_.grid->tp(); ++row) {
      const size_t first = tile.row(row);
      wait_until(times_.clock.data() + first, times_.dp.data() + first, static_cast<size_t>(tile.width),
                 {nullptr, queued->end[static_cast<size_t>(row)]});
    }
  }
}

// Pauses of single lanes before an action, the present one.
void StageRun::pause(const PricedAction& before) {
  if (lanes_.rare == nullptr) return;
  const auto found = lanes_.rare->pauses.find(at_);
  if (found == lanes_.rare->pauses.end()) return;
  for (const auto& [lane, seconds] : found->second) {
    const double start = times_.clock[lane];
    times_.clock[lane] += seconds;
    times_.pause[lane] += seconds;
    trace_pause(lane, start, before);
    if (path_ != nullptr) path_->work(program_.stage(), lane, PathKind::pause, seconds);
  }
}

void StageRun::wait_for_host(const PricedAction& pass) {
  if (pass.host_seconds <= 0) return;
  for (size_t lane = 0; lane < pass_start_.size(); ++lane) {
    const double queued = pass_start_[lane] + pass.host_seconds;
    if (queued <= times_.clock[lane]) continue;
    if (path_ != nullptr) path_->work(program_.stage(), lane, PathKind::host, queued - times_.clock[lane]);
    times_.clock[lane] = queued;
  }
}

void StageRun::trace_pause(size_t lane, double start, const PricedAction& before) {
  if (tracer_ == nullptr) return;
  PricedOp pause;
  pause.op.name = "pause";
  pause.op.kind = model::OpKind::host;
  pause.op.stream = model::Stream::host;
  for (size_t i = 0; i < tracer_->lanes().size(); ++i) {
    if (static_cast<size_t>(tracer_->lanes()[i].lane) != lane) continue;
    tracer_->record(i, start, times_.clock[lane], before, pause);
  }
}

// What goes on beside the computation and this action needs.
void StageRun::wait_for_streams(const PricedAction& action) {
  switch (action.action.kind) {
    case Kind::forward:
    case Kind::backward:
    case Kind::backward_input:
    case Kind::backward_weight:
      if (const auto gathered = unsharded_.find(action.action.chunk); gathered != unsharded_.end()) {
        wait_for(gathered->second.get());
        unsharded_.erase(gathered);  // later passes find it there
      }
      break;
    case Kind::reduce_gradients:
      if (program_.one_reduction_at_a_time()) wait_for(reduced_.get());
      break;
    case Kind::gather_gradients:
    case Kind::sum_tied_gradients:
    case Kind::gradient_norm:
      wait_for(load_.last().get());
      break;
    default:
      break;
  }
}

// Remembers when a queued action's last collective ends.
void StageRun::note_queued(const PricedAction& action) {
  const Kind kind = action.action.kind;
  if (kind != Kind::unshard && !(kind == Kind::reduce_gradients && program_.one_reduction_at_a_time()))
    return;
  const bool queued = std::any_of(action.ops->begin(), action.ops->end(),
                                  [](const PricedOp& op) { return op.way == Way::dp; });
  if (!queued) return;
  (kind == Kind::unshard ? unsharded_[action.action.chunk] : reduced_) = load_.last();
}

bool StageRun::run_ops(const PricedAction& action) {
  const std::vector<PricedOp>& ops = *action.ops;
  while (op_ < ops.size()) {
    const PricedOp& op = ops[op_];
    if (on_tile(op.way)) {
      size_t end = op_;
      while (end < ops.size() && on_tile(ops[end].way)) ++end;
      run_on_tiles(action, op_, end);
      op_ = end;
      continue;
    }
    const OpKey key = key_of(action, op_);
    if (op.way == Way::dp) run_dp(action, op, key);
    if (op.way == Way::send) send(action, op, key);
    const bool meets = op.way == Way::pp || op.way == Way::pp_ends;
    if (meets && !run_pp(action, op, key)) return false;
    ++op_;
  }
  return true;
}

// Clocks only go on, so that a phase starts with its first action and ends with its last.
void StageRun::note_phase_start(const PricedAction& action) {
  const int phase = phase_of(action.action.kind);
  if (phase < 0 || phases_[static_cast<size_t>(phase)].any()) return;
  const double start = lowest(times_.clock);
  phases_[static_cast<size_t>(phase)].add(start, start);
}

void StageRun::end_action(const PricedAction& action) {
  const Kind kind = action.action.kind;
  wait_for_host(action);
  note_queued(action);
  if (parallel::is_pass(kind)) pass_seconds_ += times_.clock.front() - first_lane_start_;
  const int phase = phase_of(kind);
  if (phase < 0 || phase_end_[static_cast<size_t>(phase)] != at_) return;
  double end = highest(times_.clock);
  if (kind == Kind::gather_parameters && load_.last() != nullptr) end = std::max(end, load_.last()->last_end);
  phases_[static_cast<size_t>(phase)].add(end, end);
}

}  // namespace lockstep::sim
