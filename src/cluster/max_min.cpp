#include "cluster/max_min.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace lockstep::cluster {

namespace {
constexpr double infinite = std::numeric_limits<double>::infinity();
// Shares that differ by less are one share, computed on two ways.
constexpr double rounding = 1 + 1e-12;
}  // namespace

void FlowSet::clear() {
  links_.clear();
  begins_.assign(1, 0);
  weights_.clear();
}

void FlowSet::add(std::span<const int> links, int weight) {
  if (weight < 1) throw std::invalid_argument("a flow needs a weight of at least 1");
  links_.insert(links_.end(), links.begin(), links.end());
  begins_.push_back(static_cast<uint32_t>(links_.size()));
  weights_.push_back(weight);
}

void MaxMin::load(const FlowSet& flows) {
  used_.clear();
  waiting_.clear();
  rates_.assign(flows.size(), infinite);
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
void MaxMin::share_out(const FlowSet& flows) {
  std::erase_if(used_, [this](int l) { return links_[static_cast<size_t>(l)].weight == 0; });
  for (const int l : used_) {
    Link& link = links_[static_cast<size_t>(l)];
    link.share = link.left / link.weight;
    link.least = infinite;
  }
  for (const uint32_t f : waiting_) {
    double rate = infinite;
    for (const int l : flows.links(f)) rate = std::min(rate, links_[static_cast<size_t>(l)].share);
    rates_[f] = rate;
    for (const int l : flows.links(f)) {
      Link& link = links_[static_cast<size_t>(l)];
      link.least = std::min(link.least, rate);
    }
  }
}

// Whether a link on its way fills up with all its flows at its own share.
bool MaxMin::settles(const FlowSet& flows, uint32_t flow) const {
  for (const int l : flows.links(flow)) {
    const Link& link = links_[static_cast<size_t>(l)];
    if (link.share <= rates_[flow] * rounding && link.share <= link.least * rounding) return true;
  }
  return false;
}

void MaxMin::settle_some(const FlowSet& flows) {
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

int MaxMin::joint(int link) {
  while (joined_[static_cast<size_t>(link)] != link) {
    int& next = joined_[static_cast<size_t>(link)];
    next = joined_[static_cast<size_t>(next)];
    link = next;
  }
  return link;
}

double MaxMin::equal_part(const FlowSet& flows, size_t flow) const {
  double part = infinite;
  for (const int l : flows.links(flow)) {
    part = std::min(part, capacities_[static_cast<size_t>(l)] / weights_[static_cast<size_t>(l)]);
  }
  return part;
}

const std::vector<double>& MaxMin::joint_rates(const FlowSet& flows) {
  rates(flows);
  joined_.resize(capacities_.size());
  for (size_t l = 0; l < joined_.size(); ++l) joined_[l] = static_cast<int>(l);
  slowest_.assign(capacities_.size(), infinite);
  weights_.assign(capacities_.size(), 0);
  for (size_t f = 0; f < flows.size(); ++f) {
    for (const int l : flows.links(f)) {
      weights_[static_cast<size_t>(l)] += flows.weight(f);
      joined_[static_cast<size_t>(joint(l))] = joint(flows.links(f)[0]);
    }
  }
  for (size_t f = 0; f < flows.size(); ++f) {
    if (flows.links(f).empty()) continue;
    double& slowest = slowest_[static_cast<size_t>(joint(flows.links(f)[0]))];
    slowest = std::min(slowest, rates_[f]);
  }
  for (size_t f = 0; f < flows.size(); ++f) {
    if (flows.links(f).empty()) continue;
    rates_[f] = std::max(slowest_[static_cast<size_t>(joint(flows.links(f)[0]))], equal_part(flows, f));
  }
  return rates_;
}

const std::vector<double>& MaxMin::rates(const FlowSet& flows) {
  load(flows);
  while (!waiting_.empty()) {
    share_out(flows);
    settle_some(flows);
  }
  return rates_;
}

}  // namespace lockstep::cluster
