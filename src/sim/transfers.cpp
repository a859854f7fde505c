#include "sim/transfers.hpp"

#include <algorithm>
#include <stdexcept>

namespace lockstep::sim {

std::shared_ptr<const TransferTimes> StageTransfers::times(const cost::Transfer& transfer,
                                                           double waited_share) {
  std::shared_ptr<TransferTimes>& known = times_[{transfer, waited_share}];
  if (known != nullptr) return known;
  known = std::make_shared<TransferTimes>();
  known->transfer = transfer;
  const cost::RankSeconds& by_rank = prices_.seconds(transfer);
  if (by_rank.is_same_for_all()) {
    known->seconds = by_rank[0];
    known->waited = waited_share * by_rank[0];
    return known;
  }
  std::vector<double> seconds, waited;
  seconds.reserve(ranks_.size());
  waited.reserve(ranks_.size());
  for (const int rank : ranks_) {
    seconds.push_back(by_rank[static_cast<size_t>(rank)]);
    waited.push_back(waited_share * seconds.back());
  }
  known->seconds = PerLane(std::move(seconds));
  known->waited = PerLane(std::move(waited));
  return known;
}

StageTransfers::Over StageTransfers::over(const cost::Transfer& transfer) {
  const std::pair key{transfer.axis, transfer.kind == model::OpKind::send};
  const auto known = over_.find(key);
  return known != over_.end() ? known->second : over_.emplace(key, find_over(transfer)).first->second;
}

// By the distance of neighbours: at least a node apart, or all of a group inside one.
StageTransfers::Over StageTransfers::find_over(const cost::Transfer& transfer) const {
  using parallel::Axis;
  const auto size = [&](Axis axis) { return mesh_.size(axis); };
  int stride = mesh_.stride(transfer.axis);
  if (transfer.axis == Axis::dp_cp) {
    if (size(Axis::cp) == 1 || size(Axis::dp) > 1) stride = mesh_.stride(Axis::dp);
    if (size(Axis::cp) > 1) stride = std::min(stride, mesh_.stride(Axis::cp));
  }
  if (stride >= gpus_per_node_) return Over::nic;
  if (transfer.axis == Axis::dp_cp || transfer.kind == model::OpKind::send) return Over::both;
  const int last = (size(transfer.axis) - 1) * stride;
  for (const int rank : ranks_) {
    const std::vector<int> group = mesh_.group(transfer.axis, rank);
    if (group.front() / gpus_per_node_ != (group.front() + last) / gpus_per_node_) return Over::both;
  }
  return Over::nvlink;
}

PerLane StageTransfers::ratio(const cost::Transfer& of, const std::vector<cost::Transfer>& beside) const {
  const cost::RankSeconds& shared = prices_.seconds_beside(of, beside);
  const cost::RankSeconds& alone = prices_.seconds(of);
  const auto of_rank = [&](size_t rank) {
    if (alone[rank] <= 0) return 1.0;
    const double times = shared[rank] / alone[rank];
    constexpr double rounding = 1e-9;
    if (times < 1 - rounding) throw std::logic_error("a transfer is faster beside another than alone");
    return std::max(1.0, times);
  };
  if (shared.is_same_for_all() && alone.is_same_for_all()) return of_rank(0);
  std::vector<double> out;
  out.reserve(ranks_.size());
  for (const int rank : ranks_) out.push_back(of_rank(static_cast<size_t>(rank)));
  return PerLane(std::move(out));
}

const Sharing& StageTransfers::sharing(const TransferTimes& first, const TransferTimes& second) {
  const auto [known, is_new] = sharing_.try_emplace({&first, &second});
  Sharing& s = known->second;
  if (!is_new) return s;
  const Over a = over(first.transfer), b = over(second.transfer);
  s.in_common = a == b || a == Over::both || b == Over::both;
  if (!s.in_common) return s;
  s.first = ratio(first.transfer, {second.transfer});
  s.second = ratio(second.transfer, {first.transfer});
  return s;
}

const PerLane& StageTransfers::pace_beside_two(const TransferTimes& of, const TransferTimes& one,
                                               const TransferTimes& two) {
  const Sharing &with_one = sharing(of, one), &with_two = sharing(of, two);
  if (!with_two.in_common) return with_one.first;
  if (!with_one.in_common) return with_two.first;
  const auto [known, is_new] = beside_two_.try_emplace({&of, std::min(&one, &two), std::max(&one, &two)});
  if (is_new) known->second = ratio(of.transfer, {one.transfer, two.transfer});
  return known->second;
}

}  // namespace lockstep::sim
