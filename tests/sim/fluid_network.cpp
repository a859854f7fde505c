#include "sim/fluid_network.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::tests {

void FluidNetwork::start_flow(int from, int to, double bytes, Happens ended) {
  flows_.push_back({fabric_.path(from, to), bytes, 0, std::move(ended)});
  changed_ = true;
}

// Progressive filling: the link that gives its flows least settles them; the others share what is left.
void FluidNetwork::share_out() {
  unsettled_.clear();
  for (size_t f = 0; f < flows_.size(); ++f) {
    unsettled_.push_back(f);
    for (const int l : flows_[f].path.links()) load_[static_cast<size_t>(l)] = {fabric_.capacity(l), 0};
  }
  for (const Flow& f : flows_) {
    for (const int l : f.path.links()) ++load_[static_cast<size_t>(l)].flows;
  }
  while (!unsettled_.empty()) {
    double least = std::numeric_limits<double>::infinity();
    const auto share_of = [&](size_t f) {
      double share = std::numeric_limits<double>::infinity();
      for (const int l : flows_[f].path.links()) {
        share = std::min(share, load_[static_cast<size_t>(l)].share());
      }
      return share;
    };
    for (const size_t f : unsettled_) {
      flows_[f].rate = share_of(f);
      least = std::min(least, flows_[f].rate);
    }
    std::erase_if(unsettled_, [&](size_t f) {
      if (flows_[f].rate > least * (1 + 1e-12)) return false;
      for (const int l : flows_[f].path.links()) {
        Load& load = load_[static_cast<size_t>(l)];
        load.left -= flows_[f].rate;
        --load.flows;
      }
      return true;
    });
  }
  changed_ = false;
}

double FluidNetwork::next_time() const {
  double time = events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().time;
  for (const Flow& f : flows_) time = std::min(time, now_ + f.left / f.rate);
  return time;
}

void FluidNetwork::move_to(double time) {
  for (Flow& f : flows_) f.left -= f.rate * (time - now_);
  now_ = time;
}

void FluidNetwork::run() {
  while (!events_.empty() || !flows_.empty()) {
    if (changed_) share_out();
    move_to(std::max(now_, next_time()));
    std::vector<Happens> ended;
    for (size_t f = flows_.size(); f-- > 0;) {
      if (flows_[f].left > flows_[f].rate * rounding()) continue;
      ended.push_back(std::move(flows_[f].ended));
      std::swap(flows_[f], flows_.back());
      flows_.pop_back();
    }
    changed_ = changed_ || !ended.empty();
    for (const Happens& happens : ended) happens();
    while (!events_.empty() && events_.top().time <= now_ + rounding()) {
      const Happens happens = events_.top().what;
      events_.pop();
      happens();
    }
  }
}

}  // namespace lockstep::tests
