#include "sim/lane_trace.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/philox.hpp"

namespace lockstep::sim {

namespace {

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace

LaneTracer::LaneTracer(std::vector<Traced> lanes, int stage, int stage_stride, int step, size_t spans_a_rank)
    : lanes_(std::move(lanes)),
      stage_(stage),
      stage_stride_(stage_stride),
      step_(step),
      before_(lanes_.size()) {
  for (const Traced& traced : lanes_) recorders_.emplace_back(traced.rank, spans_a_rank);
}

void LaneTracer::before(const std::vector<double>& clock, int begin, int end) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int lane = lanes_[i].lane;
    if (lane >= begin && lane < end) before_[i] = clock[static_cast<size_t>(lane)];
  }
}

void LaneTracer::after(const std::vector<double>& clock, int begin, int end, const PricedAction& action,
                       const PricedOp& op) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int lane = lanes_[i].lane;
    if (lane >= begin && lane < end) record(i, before_[i], clock[static_cast<size_t>(lane)], action, op);
  }
}

uint64_t LaneTracer::message_id(int rank, const parallel::Action& a) const {
  const int other = rank + (a.peer - stage_) * stage_stride_;
  const bool sends = !parallel::is_receive(a.kind);
  const auto bits = [](int value) { return static_cast<uint32_t>(value); };
  const int chunk = sends ? a.peer_chunk : a.chunk;
  const PhiloxKey key = philox_key(goes_forward(a.kind) ? 1 : 0, "simulated message");
  const PhiloxCounter id = philox4x32({bits(sends ? rank : other), bits(sends ? other : rank),
                                       bits(chunk) << 16 ^ bits(a.micro_batch), bits(step_)},
                                      key);
  return uint64_t{id[0]} << 32 | id[1];
}

void LaneTracer::record(size_t i, double start, double end, const PricedAction& action, const PricedOp& op) {
  const parallel::Action& a = action.action;
  observe::Span span;
  span.start_ns = nanoseconds(start);
  span.end_ns = nanoseconds(end);
  span.bytes = op.way == Way::kernel ? 0 : op.op.bytes;
  span.name = recorders_[i].name_id(op.op.name);
  span.step = step_;
  span.chunk = a.chunk;
  span.micro_batch = a.micro_batch;
  span.stream = op.op.stream;
  if (op.way == Way::send || op.way == Way::receive) {
    span.message = message_id(lanes_[i].rank, a);
    span.message_end = op.way == Way::send ? observe::MessageEnd::sent : observe::MessageEnd::received;
  }
  recorders_[i].record(span);
}

std::vector<observe::SpanFile> LaneTracer::take() {
  std::vector<observe::SpanFile> out;
  for (observe::SpanRecorder& recorder : recorders_) {
    observe::SpanFile file{recorder.rank(), recorder.dropped(), recorder.names(), recorder.spans()};
    std::stable_sort(file.spans.begin(), file.spans.end(),
                     [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
    out.push_back(std::move(file));
  }
  recorders_.clear();
  lanes_.clear();
  return out;
}

}  // namespace lockstep::sim
