// The ops of a stage's actions on its lanes.
#include <algorithm>

#include "base/error.hpp"
#include "sim/stage_run.hpp"

namespace lockstep::sim {

namespace {

using Kind = parallel::ActionKind;

}  // namespace

OpKey StageRun::key_of(const PricedAction& action, size_t op) const {
  return lanes_.op_keys == nullptr ? OpKey{} : (*lanes_.op_keys)[action.first_op + op];
}

double StageRun::factor(size_t lane, OpKey key) const {
  if (lanes_.shape == nullptr) return 1;
  return lanes_.shape->factor({lanes_.key_a[lane], lanes_.key_b[lane]}, key);
}

std::vector<double>* StageRun::bucket(Kind kind) {
  if (kind == Kind::load_batch) return &times_.data;
  if (kind == Kind::gradient_norm || kind == Kind::optimizer_step) return &times_.optimizer;
  return nullptr;
}

TileLanes StageRun::view(const Tile& tile) {
  const size_t lane = static_cast<size_t>(tile.first_lane);
  return {lanes_.grid->tp(),
          lanes_.grid->cp(),
          tile.width,
          times_.clock.data() + lane,
          lanes_.time_factor.data() + lane,
          lanes_.key_a.data() + lane,
          lanes_.key_b.data() + lane,
          times_.tp.data() + lane,
          times_.cp.data() + lane};
}

double StageRun::transfer_seconds(size_t lane, const PricedOp& op, OpKey key) const {
  return op.transfer->waited[lane] * factor(lane, key);
}

double StageRun::retransmit_seconds(size_t lane, const PricedOp& op, OpKey key) const {
  if (lanes_.rare == nullptr) return 0;
  return lanes_.rare->retransmit(lane, op.transfer->transfer, {lanes_.key_a[lane], lanes_.key_b[lane]}, key);
}

// With nothing beside it.
void StageRun::run_op(const Tile& tile, const PricedOp& op, OpKey key) {
  const OpDraw draw{lanes_.shape, key};
  if (op.way == Way::kernel) return run_kernel(view(tile), op.seconds, draw);
  const LaneValues seconds = values_from(op.transfer->waited, static_cast<size_t>(tile.first_lane));
  if (op.way == Way::tp) return run_tp_collective(view(tile), lanes_.grid->tp(), seconds, draw);
  if (op.way == Way::cp) return run_cp_collective(view(tile), seconds, draw);
  run_tp_collective(view(tile), lanes_.kv_copies, seconds, draw);
}

// A collective of these lanes, counted from the tile's first, lane by lane.
void StageRun::run_group(const Tile& tile, const PricedOp& op, OpKey key, const StreamLoad::Beside& beside,
                         const std::vector<size_t>& lanes) {
  const auto first = static_cast<size_t>(tile.first_lane), width = static_cast<size_t>(tile.width);
  double start = 0;
  for (const size_t lane : lanes) start = std::max(start, times_.clock[first + lane]);
  const double seconds = transfer_seconds(first + lanes.front(), op, key);
  double end = start + seconds;
  if (beside.any) {
    for (const size_t lane : lanes) {
      const int row = static_cast<int>(lane / width);
      end = std::max(end, load_.transfer_end(first + lane, row, start, seconds, beside));
    }
  }
  end += retransmit_seconds(first + lanes.front(), op, key);
  std::vector<double>& waited = op.way == Way::cp ? times_.cp : times_.tp;
  for (const size_t lane : lanes) {
    waited[first + lane] += end - times_.clock[first + lane];
    times_.clock[first + lane] = end;
  }
}

void StageRun::run_groups(const Tile& tile, const PricedOp& op, OpKey key, const StreamLoad::Beside& beside) {
  for (const std::vector<size_t>& group : groups_.of(tile, op.way)) run_group(tile, op, key, beside, group);
}

void StageRun::run_kernel_beside(const Tile& tile, const PricedOp& op, OpKey key) {
  run_slowed_kernel(view(tile), op.seconds, {lanes_.shape, key}, load_.kernel_pace(),
                    load_.messages_gone() + tile.first_lane, rows_until_.data());
}

// Of the ops [begin, end) of an action, once for each set of transfers that go on beside it.
const OpsOnTiles& StageRun::prepare(const PricedAction& action, size_t begin, size_t end) {
  prepared_key_.assign(1, &(*action.ops)[begin]);
  load_.add_present(prepared_key_);
  const auto [known, is_new] = prepared_.try_emplace(prepared_key_);
  OpsOnTiles& ops = known->second;
  if (!is_new) return ops;
  const bool packets_are_lost = lanes_.rare != nullptr && lanes_.rare->retransmit_probability > 0;
  ops.beside_matters = load_.slows_kernels();
  for (size_t i = begin; i < end; ++i) {
    const PricedOp& op = (*action.ops)[i];
    ops.beside.push_back(op.way == Way::kernel ? StreamLoad::Beside{} : load_.beside(*op.transfer));
    ops.beside_matters = ops.beside_matters || ops.beside.back().any;
    ops.lane_by_lane = ops.lane_by_lane || (packets_are_lost && op.way != Way::kernel);
  }
  return ops;
}

void StageRun::run_tile(const Tile& tile, const PricedAction& action, size_t begin, size_t end,
                        const OpsOnTiles& ops) {
  const int last = tile.first_lane + lanes_.grid->tp() * tile.width;
  const double* const clock = times_.clock.data() + tile.first_lane;
  const auto lanes = static_cast<size_t>(last - tile.first_lane);
  // Once the last of what goes on beside has ended before the tile's first lane, nothing is beside any more,
  // and ops are cheaper to run. It need not be seen at once.
  constexpr size_t ops_between_looks = 4;
  bool watches = ops.beside_matters;
  const double until = watches ? load_.busy_until(tile) : 0;
  for (size_t i = begin; i < end; ++i) {
    const PricedOp& op = (*action.ops)[i];
    const OpKey key = key_of(action, i);
    if (tracer_ != nullptr) tracer_->before(times_.clock, tile.first_lane, last);
    if (path_ != nullptr) clock_before_.assign(clock, clock + lanes);
    if (watches && (i - begin) % ops_between_looks == 0) watches = until > lowest(clock, lanes);
    const StreamLoad::Beside& beside = ops.beside[i - begin];
    if (op.way != Way::kernel && ((watches && beside.any) || ops.lane_by_lane)) {
      run_groups(tile, op, key, beside);
    } else if (watches && op.way == Way::kernel && load_.slows_kernels()) {
      run_kernel_beside(tile, op, key);
    } else {
      run_op(tile, op, key);
    }
    if (tracer_ != nullptr) tracer_->after(times_.clock, tile.first_lane, last, action, op);
    path_on_tile(tile, op);
  }
}

void StageRun::run_on_tiles(const PricedAction& action, size_t begin, size_t end) {
  std::vector<double>* booked = bucket(action.action.kind);
  std::vector<double> kernels_before;
  if (booked != nullptr) {
    for (size_t i = 0; i < booked->size(); ++i) kernels_before.push_back(times_.clock[i] - times_.tp[i]);
  }
  load_.forget(times_.clock);
  const OpsOnTiles& ops = prepare(action, begin, end);
  if (load_.slows_kernels()) load_.collectives_end(rows_until_);
  for (const Tile& tile : lanes_.grid->tiles()) run_tile(tile, action, begin, end, ops);
  if (booked != nullptr) {
    for (size_t i = 0; i < booked->size(); ++i) {
      (*booked)[i] += times_.clock[i] - times_.tp[i] - kernels_before[i];
    }
  }
}

// When the last of a row's lanes has queued a collective now, and the one before it has ended.
double StageRun::ready_row(int row, const QueuedCollective* earlier) const {
  double ready = earlier == nullptr ? 0 : earlier->end[static_cast<size_t>(row)];
  for (const Tile& tile : lanes_.grid->tiles()) {
    ready = std::max(ready, highest(times_.clock.data() + tile.row(row), static_cast<size_t>(tile.width)));
  }
  return ready;
}

void StageRun::run_dp(const PricedAction& action, const PricedOp& op, OpKey key) {
  const LaneGrid& grid = *lanes_.grid;
  const std::shared_ptr<const QueuedCollective> earlier = load_.last();
  const Crowding* crowding = action.crowding.empty() ? nullptr : action.crowding.at(op_).get();
  auto queued = std::make_shared<QueuedCollective>();
  queued->transfer = op.transfer;
  for (int row = 0; row < grid.tp(); ++row) {
    const auto first = static_cast<size_t>(grid.lane(row, 0));
    const double start = ready_row(row, earlier.get());
    const double alone = transfer_seconds(first, op, key);
    const double end = load_.collective_end(row, start, alone, crowding) + retransmit_seconds(first, op, key);
    queued->start.push_back(start);
    queued->end.push_back(end);
    queued->last_end = std::max(queued->last_end, end);
  }
  path_queued(queued.get(), earlier.get());
  load_.queue(queued);
  if (tracer_ != nullptr) {
    for (size_t i = 0; i < tracer_->lanes().size(); ++i) {
      const LaneTracer::Traced& traced = tracer_->lanes()[i];
      const auto row = static_cast<size_t>(traced.row);
      const double clock = times_.clock[static_cast<size_t>(traced.lane)];
      const double ready = earlier == nullptr ? clock : std::max(clock, earlier->end[row]);
      tracer_->record(i, ready, queued->end[row], action, op);
    }
  }
  if (!is_queued(action.action.kind)) wait_for(queued.get());
}

// A collective of all stages, or of the two ends.
bool StageRun::run_pp(const PricedAction& action, const PricedOp& op, OpKey key) {
  const bool ends = op.way == Way::pp_ends;
  int& had = meetings_[ends ? 1 : 0];
  const Exchange::MeetingKey place{ends, had};
  if (!entered_) {
    std::vector<double> seconds(program_.stage() == 0 ? times_.clock.size() : 0);
    for (size_t i = 0; i < seconds.size(); ++i) {
      seconds[i] = transfer_seconds(i, op, key) + retransmit_seconds(i, op, key);
    }
    if (path_ != nullptr) path_->enter(place, program_.stage(), times_.clock);
    exchange_.enter(place, times_.clock, std::move(seconds));
    entered_ = true;
  }
  const Exchange::Meeting* meeting = exchange_.meeting(place);
  if (meeting == nullptr) return false;
  path_met(place, *meeting);
  const int lanes = lanes_.grid->lanes();
  if (tracer_ != nullptr) tracer_->before(times_.clock, 0, lanes);
  for (size_t i = 0; i < times_.clock.size(); ++i) {
    const double end = meeting->start[i] + meeting->seconds[i];
    times_.pp_meeting[i] += end - times_.clock[i];
    times_.clock[i] = end;
  }
  if (tracer_ != nullptr) tracer_->after(times_.clock, 0, lanes, action, op);
  entered_ = false;
  ++had;
  return true;
}

void StageRun::send(const PricedAction& action, const PricedOp& op, OpKey key) {
  const parallel::Action& a = action.action;
  std::vector<double> start = exchange_.buffer(), seconds = exchange_.buffer(), arrival = exchange_.buffer();
  std::copy(times_.clock.begin(), times_.clock.end(), start.begin());
  draw_seconds(seconds.data(), seconds.size(), values_from(op.transfer->waited, 0), lanes_.key_a.data(),
               lanes_.key_b.data(), {lanes_.shape, key});
  std::vector<double> lost;  // seconds of packets sent again
  if (lanes_.rare != nullptr) {
    for (size_t i = 0; i < seconds.size(); ++i) lost.push_back(retransmit_seconds(i, op, key));
  }
  load_.send(op.transfer, start, seconds, lost, arrival);
  if (tracer_ != nullptr) {
    for (size_t i = 0; i < tracer_->lanes().size(); ++i) {
      const size_t lane = static_cast<size_t>(tracer_->lanes()[i].lane);
      tracer_->record(i, start[lane], arrival[lane], action, op);
    }
  }
  const MessageKey message{a.peer, goes_forward(a.kind), a.peer_chunk, a.micro_batch};
  path_sent(message, start, arrival);
  exchange_.recycle(std::move(start));
  exchange_.recycle(std::move(seconds));
  exchange_.deliver(message, std::move(arrival));
}

}  // namespace lockstep::sim
