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

// In stretches between the ends of what is beside it, at the pace of both, of the one that is left, and
// alone.
double ReferenceTimeline::end_beside_both(double start, double seconds, double both, double pace_a,
                                          double until_a, double pace_b, double until_b) {
  double now = start, left = seconds;
  for (const double until : {std::min(until_a, until_b), std::max(until_a, until_b)}) {
    if (until <= now) continue;
    const double pace = until_a >= until && until_b >= until ? both : until_a >= until ? pace_a : pace_b;
    const double done = (until - now) / pace;
    if (done >= left) return now + left * pace;
    left -= done;
    now = until;
  }
  return now + left;
}

double ReferenceTimeline::start_of(const Work& work) const {
  return work.after < 0 ? work.start : std::max(work.start, end_of(static_cast<size_t>(work.after)));
}

double ReferenceTimeline::end_of(size_t number) const {
  const Work& work = works_[number];
  if (work.ended < never) return work.ended;
  const double start = start_of(work);
  double message_pace = 1, message_end = 0;
  for (const Beside& b : work.beside) {
    if (!b.is_message) continue;
    message_pace = b.pace;
    message_end = end_of(b.number);
  }
  double end = end_beside(start, work.seconds, message_pace, message_end);
  for (const Beside& b : work.beside) {
    if (b.is_message) continue;
    const double until = collectives_[b.number].end;
    // A kernel is slowed by whether anything is beside it, not by how much.
    end = std::max(end, work.is_kernel ? end_beside(start, work.seconds, b.pace, until)
                                       : end_beside_both(start, work.seconds, b.with_message, b.pace, until,
                                                         message_pace, message_end));
  }
  return end + work.lost;
}

std::optional<cost::Transfer> ReferenceTimeline::message_before(size_t number) const {
  const int message = collectives_[number].message;
  if (message < 0) return std::nullopt;
  return works_[static_cast<size_t>(message)].transfer;
}

double ReferenceTimeline::message_gone(size_t number) const {
  const int message = collectives_[number].message;
  return message < 0 ? 0 : end_of(static_cast<size_t>(message));
}

size_t ReferenceTimeline::start_kernel(double start, double seconds) {
  Work work{start, seconds, {}, -1, never, 0, {}};
  work.is_kernel = true;
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
  std::vector<cost::Transfer> message;
  if (message_ >= 0) {
    const auto latest = static_cast<size_t>(message_);
    message.push_back(works_[latest].transfer);
    work.beside.push_back({true, latest, slowing_(transfer, message)});
  }
  for (size_t i = 0; i < collectives_.size(); ++i) {
    if (collectives_[i].end <= start) continue;
    const double pace = slowing_(transfer, {collectives_[i].transfer});
    std::vector<cost::Transfer> both = message;
    both.push_back(collectives_[i].transfer);
    work.beside.push_back({false, i, pace, slowing_(transfer, both)});
  }
  works_.push_back(std::move(work));
  return works_.size() - 1;
}

size_t ReferenceTimeline::start_message(double ready, double seconds, double lost,
                                        const cost::Transfer& transfer) {
  Work work{ready, seconds, transfer, message_, never, lost, {}};
  for (size_t i = 0; i < collectives_.size(); ++i) {
    if (collectives_[i].end > ready) {
      work.beside.push_back({false, i, slowing_(transfer, {collectives_[i].transfer})});
    }
  }
  works_.push_back(std::move(work));
  message_ = static_cast<int>(works_.size()) - 1;
  return works_.size() - 1;
}

}  // namespace lockstep::tests
