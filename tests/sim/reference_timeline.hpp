// What one rank of the plain simulator has under way at the same time, and how that slows it down: each piece
// of work goes at its slower pace until what is beside it has ended, which may not be known yet.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "cost/transfer_prices.hpp"

namespace lockstep::tests {

// How many times as long as alone `what` takes at this rank while all of `beside` go on.
using Slowing = std::function<double(const cost::Transfer& what, const std::vector<cost::Transfer>& beside)>;

class ReferenceTimeline {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  ReferenceTimeline(double slowdown, Slowing slowing) : slowdown_(slowdown), slowing_(std::move(slowing)) {}

  // A collective over dp_cp is in the queue. Returns its number.
  size_t queue_collective(const cost::Transfer& transfer);
  void end_collective(size_t number, double time) { collectives_[number].end = time; }
  // The latest message when the collective was queued, and when it is gone; none: there was none.
  std::optional<cost::Transfer> message_before(size_t number) const;
  double message_gone(size_t number) const;

  // Work that starts now. Each returns its number.
  size_t start_kernel(double start, double seconds);
  // `lost`: seconds of packets that are sent again after it.
  size_t start_transfer(double start, double seconds, double lost, const cost::Transfer& transfer);
  // A message that is ready now and goes when the ones before are gone.
  size_t start_message(double ready, double seconds, double lost, const cost::Transfer& transfer);
  // When it ends, as far as is known.
  double end_of(size_t work) const;
  // It has ended then, and nothing changes that.
  void finish(size_t work, double time) { works_[work].ended = time; }

 private:
  struct Collective {
    cost::Transfer transfer;
    double end = never;
    int message = -1;  // the work that was the latest message when it was queued
  };
  struct Beside {
    bool is_message = false;
    size_t number = 0;
    double pace = 1;
    double with_message = 1;  // pace, while the message goes on too
  };
  struct Work {
    double start = 0, seconds = 0;
    cost::Transfer transfer;
    int after = -1;  // starts when this message is gone, if that is later
    double ended = never;
    double lost = 0;
    std::vector<Beside> beside;
    bool is_kernel = false;
  };
  double start_of(const Work& work) const;
  static double end_beside(double start, double seconds, double pace, double until);
  static double end_beside_both(double start, double seconds, double both, double pace_a, double until_a,
                                double pace_b, double until_b);

  double slowdown_;
  Slowing slowing_;
  std::vector<Collective> collectives_;
  std::vector<Work> works_;
  int message_ = -1;  // the latest
};

}  // namespace lockstep::tests
