#include "sim/reference_timeline.hpp"

#include <algorithm>

namespace lockstep::tests {

size_t ReferenceTimeline::queue_collective(const cost::Transfer& transfer) {
  collectives_.push_back({transfer, never, message_});
  return collectives_.size() - 1;
}

// Goes at its pace until `until`, and then as if alone.
double ReferenceTimeline::end_beside(double start, double seconds, double pace, double until) {
  const double at_pace = start + seconds * pace;
  if (until <= start || pace <= 1) return start + seconds;
  if (at_pace <= until) return at_pace;
  const double left = seconds - (until - start) / pace;
  return until + left;
}

double ReferenceTimeline::start_of(const Work& work) const {
  return work.after < 0 ? work.start : std::max(work.start, end_of(static_cast<size_t>(work.after)));
}

double ReferenceTimeline::end_of(size_t number) const {
  const Work& work = works_[number];
  if (work.ended < never) return work.ended;
  const double start = start_of(work);
  double end = start + work.seconds;
  for (const Beside& b : work.beside) {
    const double until = b.is_message ? end_of(b.number) : collectives_[b.number].end;
    end = std::max(end, end_beside(start, work.seconds, b.pace, until));
  }
  return end + work.lost;
}

double ReferenceTimeline::collective_part_end(size_t number, double start, double seconds) const {
  const Collective& c = collectives_[number];
  if (c.message < 0) return start + seconds;
  const Work& message = works_[static_cast<size_t>(c.message)];
  return end_beside(start, seconds, slowing_(c.transfer, message.transfer),
                    end_of(static_cast<size_t>(c.message)));
}

size_t ReferenceTimeline::start_kernel(double start, double seconds) {
  Work work{start, seconds, {}, -1, never, 0, {}};
  for (size_t i = 0; i < collectives_.size(); ++i) {
    if (collectives_[i].end > start) work.beside.push_back({false, i, 1 + slowdown_});
  }
  if (message_ >= 0) work.beside.push_back({true, static_cast<size_t>(message_), 1 + slowdown_});
  works_.push_back(std::move(work));
  return works_.size() - 1;
}

size_t ReferenceTimeline::start_transfer(double start, double seconds, double lost,
                                         const cost::Transfer& transfer) {
  Work work{start, seconds, transfer, -1, never, lost, {}};
  for (size_t i = 0; i < collectives_.size(); ++i) {
    if (collectives_[i].end > start) {
      work.beside.push_back({false, i, slowing_(transfer, collectives_[i].transfer)});
    }
  }
  if (message_ >= 0) {
    const auto latest = static_cast<size_t>(message_);
    work.beside.push_back({true, latest, slowing_(transfer, works_[latest].transfer)});
  }
  works_.push_back(std::move(work));
  return works_.size() - 1;
}

size_t ReferenceTimeline::start_message(double ready, double seconds, double lost,
                                        const cost::Transfer& transfer) {
  Work work{ready, seconds, transfer, message_, never, lost, {}};
  for (size_t i = 0; i < collectives_.size(); ++i) {
    if (collectives_[i].end > ready) {
      work.beside.push_back({false, i, slowing_(transfer, collectives_[i].transfer)});
    }
  }
  works_.push_back(std::move(work));
  message_ = static_cast<int>(works_.size()) - 1;
  return works_.size() - 1;
}

}  // namespace lockstep::tests
