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
  const StagePaths& paths = lanes_.paths;
  const auto ring = [](const PathArrays& axis, size_t first) {
    return RingView{axis.latency.data() + first, axis.seconds_per_byte.data() + first};
  };
  return {lanes_.grid->tp(),
          lanes_.grid->cp(),
          tile.width,
          times_.clock.data() + lane,
          lanes_.time_factor.data() + lane,
          lanes_.key_a.data() + lane,
          lanes_.key_b.data() + lane,
          times_.tp.data() + lane,
          times_.cp.data() + lane,
          ring(paths.tp, static_cast<size_t>(tile.first_column)),
          ring(paths.tp_kv, lane),
          ring(paths.cp, lane)};
}

void StageRun::run_op(const Tile& tile, const PricedOp& op, OpKey key) {
  if (op.way == Way::kernel) return run_kernel(view(tile), op.seconds, lanes_.shape, key);
  const CollectiveTime time{op.rounds, op.bytes, lanes_.shape, key};
  if (op.way == Way::tp) return run_tp_collective(view(tile), time);
  if (op.way == Way::cp) return run_cp_collective(view(tile), time);
  run_tp_kv_collective(view(tile), lanes_.kv_copies, time);
}

void StageRun::run_on_tiles(const PricedAction& action, size_t begin, size_t end) {
  std::vector<double>* booked = bucket(action.action.kind);
  std::vector<double> kernels_before;
  if (booked != nullptr) {
    for (size_t i = 0; i < booked->size(); ++i) kernels_before.push_back(times_.clock[i] - times_.tp[i]);
  }
  // Keys once an op, not once a tile and op.
  std::vector<OpKey> keys(end - begin);
  if (lanes_.shape != nullptr) {
    for (size_t i = begin; i < end; ++i) {
      keys[i - begin] = op_key(action.first_op + static_cast<uint32_t>(i));
    }
  }
  for (const Tile& tile : lanes_.grid->tiles()) {
    const int last = tile.first_lane + lanes_.grid->tp() * tile.width;
    for (size_t i = begin; i < end; ++i) {
      const PricedOp& op = (*action.ops)[i];
      if (tracer_ != nullptr) tracer_->before(times_.clock, tile.first_lane, last);
      run_op(tile, op, keys[i - begin]);
      if (tracer_ != nullptr) tracer_->after(times_.clock, tile.first_lane, last, action, op);
    }
  }
  if (booked != nullptr) {
    for (size_t i = 0; i < booked->size(); ++i) {
      (*booked)[i] += times_.clock[i] - times_.tp[i] - kernels_before[i];
    }
  }
}

void StageRun::run_dp(const PricedAction& action, const PricedOp& op, OpKey key) {
  const LaneGrid& grid = *lanes_.grid;
  std::vector<double> ready(times_.clock.size());
  for (size_t i = 0; i < ready.size(); ++i) ready[i] = std::max(times_.clock[i], times_.dp_stream[i]);
  for (int t = 0; t < grid.tp(); ++t) {
    double start = 0;
    for (const Tile& tile : grid.tiles()) {
      const double* const row = ready.data() + tile.first_lane + t * tile.width;
      for (int c = 0; c < tile.width; ++c) start = std::max(start, row[c]);
    }
    const double end = start + lanes_.paths.dp.seconds(static_cast<size_t>(t), op.rounds, op.bytes) *
                                   factor(static_cast<size_t>(grid.lane(t, 0)), key);
    for (const Tile& tile : grid.tiles()) {
      std::fill_n(times_.dp_stream.data() + tile.first_lane + t * tile.width, tile.width, end);
    }
  }
  if (!is_beside(action.action.kind)) wait_for_dp();
  if (tracer_ == nullptr) return;
  for (size_t i = 0; i < tracer_->lanes().size(); ++i) {
    const size_t lane = static_cast<size_t>(tracer_->lanes()[i].lane);
    tracer_->record(i, ready[lane], times_.dp_stream[lane], action, op);
  }
}

// A collective of all stages, or of the two ends.
bool StageRun::run_pp(const PricedAction& action, const PricedOp& op, OpKey key) {
  const bool ends = op.way == Way::pp_ends;
  int& had = meetings_[ends ? 1 : 0];
  const Exchange::MeetingKey place{ends, had};
  if (!entered_) {
    exchange_.enter(place, times_.clock);
    if (program_.stage() == 0 && lanes_.shape != nullptr) {
      std::vector<double> factors(times_.clock.size());
      for (size_t i = 0; i < factors.size(); ++i) factors[i] = factor(i, key);
      exchange_.set_factor(place, std::move(factors));
    }
    entered_ = true;
  }
  const Exchange::Meeting* meeting = exchange_.meeting(place);
  if (meeting == nullptr) return false;
  const PathArrays& ring = ends ? lanes_.paths.pp_ends : lanes_.paths.pp;
  const int lanes = lanes_.grid->lanes();
  if (tracer_ != nullptr) tracer_->before(times_.clock, 0, lanes);
  for (size_t i = 0; i < times_.clock.size(); ++i) {
    double seconds = ring.seconds(i, op.rounds, op.bytes);
    if (!meeting->factor.empty()) seconds *= meeting->factor[i];
    const double end = meeting->start[i] + seconds;
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
  const auto path = lanes_.paths.message.find(a.peer);
  if (path == lanes_.paths.message.end()) throw RunError(where() + ": messages go to neighbours only");
  std::vector<double>& stream = times_.send_stream;
  for (size_t i = 0; i < stream.size(); ++i) stream[i] = std::max(stream[i], times_.clock[i]);
  const int lanes = lanes_.grid->lanes();
  if (tracer_ != nullptr) tracer_->before(stream, 0, lanes);
  for (size_t i = 0; i < stream.size(); ++i) {
    stream[i] += path->second.seconds(i, op.rounds, op.bytes) * factor(i, key);
  }
  if (tracer_ != nullptr) tracer_->after(stream, 0, lanes, action, op);
  std::vector<double> arrival = exchange_.buffer();
  std::copy(stream.begin(), stream.end(), arrival.begin());
  exchange_.deliver({a.peer, goes_forward(a.kind), a.peer_chunk, a.micro_batch}, std::move(arrival));
}

}  // namespace lockstep::sim
