#include "sim/transfers.hpp"

#include <algorithm>

namespace lockstep::sim {

std::shared_ptr<const TransferTimes> StageTransfers::times(const cost::Transfer& transfer) {
  std::shared_ptr<TransferTimes>& known = times_[transfer];
  if (known != nullptr) return known;
  known = std::make_shared<TransferTimes>();
  known->transfer = transfer;
  const std::vector<double>& by_rank = prices_.seconds(transfer);
  for (const int rank : ranks_) known->seconds.push_back(by_rank[static_cast<size_t>(rank)]);
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

std::vector<double> StageTransfers::ratio(const cost::Transfer& of, const cost::Transfer& beside) const {
  const std::vector<double>& shared = prices_.seconds_beside(of, beside);
  const std::vector<double>& alone = prices_.seconds(of);
  std::vector<double> out;
  out.reserve(ranks_.size());
  for (const int rank : ranks_) {
    const auto r = static_cast<size_t>(rank);
    out.push_back(alone[r] > 0 ? std::max(1.0, shared[r] / alone[r]) : 1.0);
  }
  return out;
}

const Sharing& StageTransfers::sharing(const TransferTimes& first, const TransferTimes& second) {
  const std::pair key{first.transfer, second.transfer};
  const auto known = sharing_.find(key);
  if (known != sharing_.end()) return known->second;
  const Over a = over(first.transfer), b = over(second.transfer);
  if (a != b && a != Over::both && b != Over::both) return sharing_[key];  // no link in common
  Sharing s{ratio(first.transfer, second.transfer), ratio(second.transfer, first.transfer)};
  const auto above_one = [](double r) { return r > 1; };
  s.any = std::any_of(s.first.begin(), s.first.end(), above_one) ||
          std::any_of(s.second.begin(), s.second.end(), above_one);
  return sharing_.emplace(key, std::move(s)).first->second;
}

}  // namespace lockstep::sim
