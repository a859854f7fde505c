// The ops of a stage's actions on its lanes.
#include <algorithm>

#include "base/error.hpp"
#include "sim/stage_run.hpp"

namespace lockstep::sim {

namespace {

using Kind = parallel::ActionKind;

// Queued beside the computation; every other collective is waited for where it stands.
bool is_beside(Kind kind) {
  return kind == Kind::unshard || kind == Kind::reduce_gradients || kind == Kind::gather_parameters;
}

}  // namespace

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
  return op.transfer->seconds[lane] * factor(lane, key);
}

double StageRun::retransmit_seconds(size_t lane, const PricedOp& op, OpKey key) const {
  if (lanes_.rare == nullptr) return 0;
  return lanes_.rare->retransmit(lane, op.op.axis, {lanes_.key_a[lane], lanes_.key_b[lane]}, key);
}

// With nothing beside it.
void StageRun::run_op(const Tile& tile, const PricedOp& op, OpKey key) {
  const OpDraw draw{lanes_.shape, key};
  if (op.way == Way::kernel) return run_kernel(view(tile), op.seconds, draw);
  const double* seconds = op.transfer->seconds.data() + tile.first_lane;
  if (op.way == Way::tp) return run_tp_collective(view(tile), lanes_.grid->tp(), seconds, draw);
  if (op.way == Way::cp) return run_cp_collective(view(tile), seconds, draw);
  run_tp_collective(view(tile), lanes_.kv_copies, seconds, draw);
}

// A collective of these lanes, lane by lane.
void StageRun::run_group(const PricedOp& op, OpKey key, const StreamLoad::Beside& beside,
                         const std::vector<size_t>& lanes) {
  double start = 0;
  for (const size_t lane : lanes) start = std::max(start, times_.clock[lane]);
  const double seconds = transfer_seconds(lanes.front(), op, key);
  double end = start + seconds;
  if (beside.any) {
    for (const size_t lane : lanes) end = std::max(end, load_.transfer_end(lane, start, seconds, beside));
  }
  end += retransmit_seconds(lanes.front(), op, key);
  std::vector<double>& waited = op.way == Way::cp ? times_.cp : times_.tp;
  for (const size_t lane : lanes) {
    waited[lane] += end - times_.clock[lane];
    times_.clock[lane] = end;
  }
}

void StageRun::run_op_beside(const Tile& tile, const PricedOp& op, OpKey key,
                             const StreamLoad::Beside& beside) {
  const auto first = static_cast<size_t>(tile.first_lane);
  const auto width = static_cast<size_t>(tile.width), tp = static_cast<size_t>(lanes_.grid->tp());
  if (op.way == Way::kernel) {
    for (size_t lane = first; lane < first + tp * width; ++lane) {
      const double seconds = op.seconds * lanes_.time_factor[lane] * factor(lane, key);
      times_.clock[lane] = load_.kernel_end(lane, times_.clock[lane], seconds);
    }
    return;
  }
  for (const std::vector<size_t>& group : groups(tile, op.way)) run_group(op, key, beside, group);
}

// The lanes of each group of a tile that a collective has.
std::vector<std::vector<size_t>> StageRun::groups(const Tile& tile, Way way) const {
  const auto first = static_cast<size_t>(tile.first_lane), width = static_cast<size_t>(tile.width);
  const auto lanes = static_cast<size_t>(lanes_.grid->tp()) * width;
  const bool along_row = way == Way::cp;
  const auto members = static_cast<size_t>(along_row        ? lanes_.grid->cp()
                                           : way == Way::tp ? lanes_.grid->tp()
                                                            : lanes_.kv_copies);
  const size_t step = along_row ? 1 : width;  // from one member to the next
  std::vector<std::vector<size_t>> out;
  for (size_t lane = 0; lane < lanes; ++lane) {
    if (lane / step % members != 0) continue;
    out.emplace_back();
    for (size_t i = 0; i < members; ++i) out.back().push_back(first + lane + i * step);
  }
  return out;
}

// Of the ops [begin, end) of an action, once for each set of transfers that go on beside it.
const OpsOnTiles& StageRun::prepare(const PricedAction& action, size_t begin, size_t end) {
  std::vector<const void*> key = {&(*action.ops)[begin]};
  for (const TransferTimes* transfer : load_.present()) key.push_back(transfer);
  const auto known = prepared_.find(key);
  if (known != prepared_.end()) return known->second;
  OpsOnTiles ops;
  const bool packets_are_lost = lanes_.rare != nullptr && lanes_.rare->retransmit_probability > 0;
  ops.beside_matters = load_.slows_kernels();
  for (size_t i = begin; i < end; ++i) {
    const PricedOp& op = (*action.ops)[i];
    ops.beside.push_back(op.way == Way::kernel ? StreamLoad::Beside{} : load_.beside(*op.transfer));
    ops.beside_matters = ops.beside_matters || ops.beside.back().any;
    ops.lane_by_lane = ops.lane_by_lane || (packets_are_lost && op.way != Way::kernel);
  }
  return prepared_.emplace(std::move(key), std::move(ops)).first->second;
}

void StageRun::run_tile(const Tile& tile, const PricedAction& action, size_t begin,
                        const std::vector<OpKey>& keys, const OpsOnTiles& ops) {
  const int last = tile.first_lane + lanes_.grid->tp() * tile.width;
  const auto first_lane = times_.clock.begin() + tile.first_lane, last_lane = times_.clock.begin() + last;
  // Once the last of what goes on beside has ended before the tile's first lane, nothing is beside any more.
  bool watches = ops.beside_matters;
  for (size_t i = 0; i < keys.size(); ++i) {
    const PricedOp& op = (*action.ops)[begin + i];
    if (tracer_ != nullptr) tracer_->before(times_.clock, tile.first_lane, last);
    if (path_ != nullptr) clock_before_.assign(first_lane, last_lane);
    if (watches) {
      const double until = load_.busy_until(static_cast<size_t>(tile.first_lane), static_cast<size_t>(last));
      watches = until > *std::min_element(first_lane, last_lane);
    }
    if (watches || (ops.lane_by_lane && op.way != Way::kernel)) {
      run_op_beside(tile, op, keys[i], ops.beside[i]);
    } else {
      run_op(tile, op, keys[i]);
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
  // Keys once an op, not once a tile and op.
  std::vector<OpKey> keys(end - begin);
  if (lanes_.shape != nullptr || lanes_.rare != nullptr) {
    for (size_t i = begin; i < end; ++i) {
      keys[i - begin] = op_key(action.first_op + static_cast<uint32_t>(i));
    }
  }
  load_.forget(*std::min_element(times_.clock.begin(), times_.clock.end()));
  const OpsOnTiles& ops = prepare(action, begin, end);
  for (const Tile& tile : lanes_.grid->tiles()) run_tile(tile, action, begin, keys, ops);
  if (booked != nullptr) {
    for (size_t i = 0; i < booked->size(); ++i) {
      (*booked)[i] += times_.clock[i] - times_.tp[i] - kernels_before[i];
    }
  }
}

void StageRun::run_dp(const PricedAction& action, const PricedOp& op, OpKey key) {
  const LaneGrid& grid = *lanes_.grid;
  const std::shared_ptr<const QueuedCollective> earlier = load_.last();
  std::vector<double> ready = times_.clock;
  if (earlier != nullptr) {
    for (size_t i = 0; i < ready.size(); ++i) ready[i] = std::max(ready[i], earlier->end[i]);
  }
  const Crowding* crowded = action.crowded == nullptr ? nullptr : &action.crowded->at(op_);
  const Sharing* messages = load_.with_messages(*op.transfer);
  auto queued = std::make_shared<QueuedCollective>();
  queued->transfer = op.transfer;
  queued->start.resize(ready.size());
  queued->end.resize(ready.size());
  for (int t = 0; t < grid.tp(); ++t) {
    const auto first = static_cast<size_t>(grid.lane(t, 0));
    const double alone = transfer_seconds(first, op, key);
    double start = 0, end = 0;
    for (int c = 0; c < grid.columns(); ++c) {
      start = std::max(start, ready[static_cast<size_t>(grid.lane(t, c))]);
    }
    for (int c = 0; c < grid.columns(); ++c) {
      const auto lane = static_cast<size_t>(grid.lane(t, c));
      const double seconds = alone * (crowded == nullptr ? 1 : crowded->factor(lane));
      end = std::max(end, load_.collective_end(lane, start, seconds, messages));
    }
    end += retransmit_seconds(first, op, key);
    for (int c = 0; c < grid.columns(); ++c) {
      queued->start[static_cast<size_t>(grid.lane(t, c))] = start;
      queued->end[static_cast<size_t>(grid.lane(t, c))] = end;
    }
  }
  path_queued(queued.get(), earlier.get(), ready);
  load_.queue(queued);
  if (!is_beside(action.action.kind)) wait_for(queued.get());
  if (tracer_ == nullptr) return;
  for (size_t i = 0; i < tracer_->lanes().size(); ++i) {
    const size_t lane = static_cast<size_t>(tracer_->lanes()[i].lane);
    tracer_->record(i, ready[lane], queued->end[lane], action, op);
  }
}

// A collective of all stages, or of the two ends.
bool StageRun::run_pp(const PricedAction& action, const PricedOp& op, OpKey key) {
  const bool ends = op.way == Way::pp_ends;
  int& had = meetings_[ends ? 1 : 0];
  const Exchange::MeetingKey place{ends, had};
  if (!entered_) {
    exchange_.enter(place, times_.clock);
    if (path_ != nullptr) path_->enter(place, program_.stage(), times_.clock);
    if (program_.stage() == 0) {
      std::vector<double> seconds(times_.clock.size());
      for (size_t i = 0; i < seconds.size(); ++i) {
        seconds[i] = transfer_seconds(i, op, key) + retransmit_seconds(i, op, key);
      }
      exchange_.set_seconds(place, std::move(seconds));
    }
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
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = transfer_seconds(i, op, key);
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
