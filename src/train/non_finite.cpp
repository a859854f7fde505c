#include "train/non_finite.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <vector>

namespace lockstep::train {

namespace {

// As it travels between workers.
struct Record {
  int64_t found = 0;
  int64_t communication = 0;
  int64_t micro_batch = 0;
  int64_t goes_back = 0;
  int64_t place = 0;  // in the order of the pass: model chunk, counted from its start
  int64_t order = 0;  // of ops on its rank
  int64_t rank = 0;
  int64_t layer = -1;
  int64_t action = 0;
  std::array<char, 56> name{};

  auto key() const { return std::tie(communication, micro_batch, goes_back, place, order, rank); }
};

Record record_of(const parallel::Layout& layout, const Groups& groups, const NonFiniteOrigin& origin) {
  Record r;
  r.found = 1;
  r.communication = origin.op.communication ? 1 : 0;
  // What belongs to no micro-batch comes after the passes.
  r.micro_batch = origin.op.micro_batch >= 0 ? origin.op.micro_batch : layout.micro_batches();
  r.goes_back = origin.action == parallel::ActionKind::forward ? 0 : 1;
  const int chunk = origin.op.chunk * layout.stages() + groups.at.pp;
  r.place = r.goes_back == 1 ? -chunk : chunk;
  r.order = origin.op.order;
  r.rank = layout.mesh().rank(groups.at);
  r.layer = origin.op.layer;
  r.action = static_cast<int64_t>(origin.action);
  std::memcpy(r.name.data(), origin.op.name.data(), std::min(origin.op.name.size(), r.name.size() - 1));
  return r;
}

// The first along one axis.
Record first_of(comm::Communicator* group, const Record& own) {
  if (group == nullptr) return own;
  std::vector<Record> all(static_cast<size_t>(group->size()));
  group->all_gather(&own, all.data(), sizeof(Record), comm::DataType::u8, {.name = "non_finite_gather"});
  Record first = own;
  for (const Record& r : all) {
    if (r.found != 0 && (first.found == 0 || r.key() < first.key())) first = r;
  }
  return first;
}

std::string text_of(const parallel::Layout& layout, const Record& r) {
  std::string text = r.layer >= 0 ? "layer " + std::to_string(r.layer) + ", " : "";
  text += r.name.data();
  if (r.micro_batch < layout.micro_batches()) text += " of micro-batch " + std::to_string(r.micro_batch);
  text += " on rank " + std::to_string(r.rank);
  return text + " (" + parallel::to_string(static_cast<parallel::ActionKind>(r.action)) + ")";
}

}  // namespace

std::string first_non_finite(const parallel::Layout& layout, const Groups& groups,
                             const NonFiniteOrigin* origin) {
  Record first = origin != nullptr ? record_of(layout, groups, *origin) : Record{};
  for (comm::Communicator* group : {groups.dp_cp.get(), groups.tp.get(), groups.pp.get()}) {
    first = first_of(group, first);
  }
  return first.found == 0 ? "" : text_of(layout, first);
}

}  // namespace lockstep::train
