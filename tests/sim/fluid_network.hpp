// Time, and flows over the links of a cluster: at every moment all flows that are under way have max-min fair
// rates, worked out anew whenever one begins or ends.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "cluster/fabric.hpp"

namespace lockstep::tests {

class FluidNetwork {
 public:
  using Happens = std::function<void()>;

  // `fabric` outlives this.
  explicit FluidNetwork(const cluster::Fabric& fabric) : fabric_(fabric), load_(fabric.capacities().size()) {}

  double now() const { return now_; }
  void at(double time, Happens what) { events_.push({time, order_++, std::move(what)}); }
  // `bytes` from rank to rank; `ended` when the last has left.
  void start_flow(int from, int to, double bytes, Happens ended);
  // Until nothing is left to happen.
  void run();

 private:
  struct Event {
    double time;
    int64_t order;
    Happens what;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Flow {
    cluster::Fabric::Path path;
    double left = 0, rate = 0;
    Happens ended;
  };
  struct Load {
    double left = 0;  // capacity that no settled flow has
    int flows = 0;    // that are not settled
    double share() const { return left / flows; }
  };

  void share_out();
  double next_time() const;
  void move_to(double time);
  // Times closer than this are one time, worked out on two ways.
  double rounding() const { return 1e-13 * now_ + 1e-18; }

  const cluster::Fabric& fabric_;
  std::vector<Load> load_;  // by link
  std::vector<Flow> flows_;
  std::vector<size_t> unsettled_;
  bool changed_ = false;
  std::priority_queue<Event> events_;
  int64_t order_ = 0;
  double now_ = 0;
};

}  // namespace lockstep::tests
