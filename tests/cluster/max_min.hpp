// Max-min fair shares of links: no flow can get more without another one, that has no more, getting less.
// Bertsekas and Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2. It is what transfers that go on
// at the same time get where switches and congestion control are fair between them: the truth for prices,
// which take a flow's equal part of its fullest link (never more, and the same for the slowest of a chain).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep::cluster {

inline constexpr double max_min_infinite = std::numeric_limits<double>::infinity();
// Shares that differ by less are one share, computed on two ways.
inline constexpr double max_min_rounding = 1 + 1e-12;

// Flows and the links that each passes.
class FlowSet {
 public:
  void clear();
  // `weight` flows that all pass `links` (numbers from 0; each at most once).
  void add(std::span<const int> links, int weight = 1);
  void add(std::initializer_list<int> links, int weight = 1) {
    add(std::span(links.begin(), links.size()), weight);
  }

  size_t size() const { return weights_.size(); }
  std::span<const int> links(size_t flow) const {
    return {links_.data() + begins_[flow], links_.data() + begins_[flow + 1]};
  }
  int weight(size_t flow) const { return weights_[flow]; }

 private:
  std::vector<int> links_;
  std::vector<uint32_t> begins_ = {0};
  std::vector<int> weights_;
};

// Keeps its arrays between calls; not for use by several threads at once.
class MaxMin {
 public:
  // By link, bytes/s, positive.
  explicit MaxMin(std::vector<double> capacities)
      : capacities_(std::move(capacities)), links_(capacities_.size()) {}

  // By entry of `flows`: the rate of each of its `weight` flows, bytes/s; infinite for one without links.
  // Progressive filling, but every link that fills up before all links that its flows pass is settled in the
  // same pass, so that a pattern takes a few passes over its flows. Valid until the next call.
  const std::vector<double>& rates(const FlowSet& flows);

 private:
  struct Link {
    double left = 0;   // capacity, without what settled flows take
    double share = 0;  // of each flow that is not settled
    double least = 0;  // that any of them gets on its way
    int weight = 0;    // of flows that are not settled
  };
  void load(const FlowSet& flows);
  void share_out(const FlowSet& flows);
  bool settles(const FlowSet& flows, uint32_t flow) const;
  void settle_some(const FlowSet& flows);

  std::vector<double> capacities_;
  std::vector<Link> links_;
  std::vector<int> used_;           // links that flows pass
  std::vector<uint32_t> waiting_;   // flows that are not settled
  std::vector<uint32_t> settling_;  // in this pass
  std::vector<double> rates_;
};

inline void FlowSet::clear() {
  links_.clear();
  begins_.assign(1, 0);
  weights_.clear();
}

inline void FlowSet::add(std::span<const int> links, int weight) {
  if (weight < 1) throw std::invalid_argument("a flow needs a weight of at least 1");
  links_.insert(links_.end(), links.begin(), links.end());
  begins_.push_back(static_cast<uint32_t>(links_.size()));
  weights_.push_back(weight);
}

inline void MaxMin::load(const FlowSet& flows) {
  used_.clear();
  waiting_.clear();
  rates_.assign(flows.size(), max_min_infinite);
  for (size_t f = 0; f < flows.size(); ++f) {
    const std::span<const int> way = flows.links(f);
    if (!way.empty()) waiting_.push_back(static_cast<uint32_t>(f));
    for (const int l : way) {
      Link& link = links_[static_cast<size_t>(l)];
      if (link.weight == 0) {
        link.left = capacities_[static_cast<size_t>(l)];
        used_.push_back(l);
      }
      link.weight += flows.weight(f);
    }
  }
}

// Every link's share, every waiting flow's least share (its rate if it settled now), and every link's least
// one of these.
inline void MaxMin::share_out(const FlowSet& flows) {
  std::erase_if(used_, [this](int l) { return links_[static_cast<size_t>(l)].weight == 0; });
  for (const int l : used_) {
    Link& link = links_[static_cast<size_t>(l)];
    link.share = link.left / link.weight;
    link.least = max_min_infinite;
  }
  for (const uint32_t f : waiting_) {
    double rate = max_min_infinite;
    for (const int l : flows.links(f)) rate = std::min(rate, links_[static_cast<size_t>(l)].share);
    rates_[f] = rate;
    for (const int l : flows.links(f)) {
      Link& link = links_[static_cast<size_t>(l)];
      link.least = std::min(link.least, rate);
    }
  }
}

// Whether a link on its way fills up with all its flows at its own share.
inline bool MaxMin::settles(const FlowSet& flows, uint32_t flow) const {
  for (const int l : flows.links(flow)) {
    const Link& link = links_[static_cast<size_t>(l)];
    if (link.share <= rates_[flow] * max_min_rounding && link.share <= link.least * max_min_rounding)
      return true;
  }
  return false;
}

inline void MaxMin::settle_some(const FlowSet& flows) {
  settling_.clear();
  size_t kept = 0;
  for (const uint32_t f : waiting_) {
    if (settles(flows, f)) {
      settling_.push_back(f);
    } else {
      waiting_[kept++] = f;
    }
  }
  waiting_.resize(kept);
  for (const uint32_t f : settling_) {
    const int weight = flows.weight(f);
    for (const int l : flows.links(f)) {
      Link& link = links_[static_cast<size_t>(l)];
      link.left -= weight * rates_[f];
      link.weight -= weight;
    }
  }
}

inline const std::vector<double>& MaxMin::rates(const FlowSet& flows) {
  load(flows);
  while (!waiting_.empty()) {
    share_out(flows);
    settle_some(flows);
  }
  return rates_;
}

}  // namespace lockstep::cluster
