// Max-min fair shares of links: no flow can get more without another one, that has no more, getting less.
// Bertsekas and Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2. It is what transfers that go on
// at the same time get where switches and congestion control are fair between them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::cluster {

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

  // At most the rates above, and other than those never less when some link gets faster: of flows that a
  // chain of shared links joins each has the rate of the slowest (which is how long equal transfers take
  // until all of them are done), or an equal part of its fullest link where that is more. Valid until the
  // next call.
  const std::vector<double>& joint_rates(const FlowSet& flows);

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
  int joint(int link);  // the link that stands for all that are joined with it
  double equal_part(const FlowSet& flows, size_t flow) const;

  std::vector<double> capacities_;
  std::vector<Link> links_;
  std::vector<int> used_;           // links that flows pass
  std::vector<uint32_t> waiting_;   // flows that are not settled
  std::vector<uint32_t> settling_;  // in this pass
  std::vector<double> rates_;
  std::vector<int> joined_;      // by link: another one of its chain; itself for the one that stands for all
  std::vector<double> slowest_;  // by link that stands for its chain
  std::vector<int> weights_;     // by link, of all flows over it
};

}  // namespace lockstep::cluster
