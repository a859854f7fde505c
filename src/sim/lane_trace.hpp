// Spans of chosen lanes of a stage, taken while the lanes run.
#pragma once

#include <vector>

#include "observe/span.hpp"
#include "sim/priced_program.hpp"

namespace lockstep::sim {

class LaneTracer {
 public:
  struct Traced {
    int lane = 0;
    int row = 0;  // of the lane
    int rank = 0;
  };

  // `stage_stride`: distance in global rank between neighbouring stages.
  // `spans_a_rank`: the most.
  LaneTracer(std::vector<Traced> lanes, int stage, int stage_stride, int step, size_t spans_a_rank);

  const std::vector<Traced>& lanes() const { return lanes_; }

  // Marks where the clocks of the traced lanes in [begin, end) stand before an op that runs on them; records
  // it after.
  void before(const std::vector<double>& clock, int begin, int end);
  void after(const std::vector<double>& clock, int begin, int end, const PricedAction& action,
             const PricedOp& op);

  // An op with times of its own, seconds, of the i-th traced lane.
  void record(size_t i, double start, double end, const PricedAction& action, const PricedOp& op);

  // The spans, in order of start. Leaves the tracer empty.
  std::vector<observe::SpanFile> take();

 private:
  uint64_t message_id(int rank, const parallel::Action& action) const;

  std::vector<Traced> lanes_;
  int stage_, stage_stride_, step_;
  std::vector<double> before_;
  std::vector<observe::SpanRecorder> recorders_;
};

}  // namespace lockstep::sim
