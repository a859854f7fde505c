#include "parallel/message_order.hpp"

#include <algorithm>
#include <tuple>

namespace lockstep::parallel {

namespace {

// An action at its place in the global order: messages stand before passes that start at the same time.
struct Placed {
  double time;
  int is_pass;
  int pass;         // the Pass
  int model_chunk;  // of the sender; with the micro-batch it makes the order total, the same on both ends
  int micro_batch;
  Action action;

  auto key() const { return std::make_tuple(time, is_pass, pass, model_chunk, micro_batch); }
};

ActionKind kind_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return ActionKind::forward;
    case Pass::backward:
      return ActionKind::backward;
    case Pass::backward_input:
      return ActionKind::backward_input;
    case Pass::backward_weight:
      return ActionKind::backward_weight;
  }
  return ActionKind::forward;
}

class Placement {
 public:
  explicit Placement(const Schedule& schedule)
      : s_(schedule), placed_(static_cast<size_t>(schedule.stages)) {}

  void add(int rank, const Slot& slot, double start) {
    const bool forward = slot.pass == Pass::forward;
    const int chunk = s_.global_chunk(rank, slot.chunk);
    const int pass = static_cast<int>(slot.pass);
    at(rank).push_back(
        {start, 1, pass, chunk, slot.micro_batch, {kind_of(slot.pass), slot.chunk, slot.micro_batch}});

    const int next = forward ? chunk + 1 : chunk - 1;
    if (slot.pass == Pass::backward_weight || next < 0 || next >= s_.chunks()) return;
    const int peer = next % s_.stages;
    const int peer_chunk = next / s_.stages;
    if (peer == rank) return;  // handed over in memory
    const double end = start + (slot.pass == Pass::backward ? 2.0 : 1.0);
    const ActionKind send = forward ? ActionKind::send_forward : ActionKind::send_backward;
    const ActionKind receive = forward ? ActionKind::receive_forward : ActionKind::receive_backward;
    const int mb = slot.micro_batch;
    at(rank).push_back({end, 0, pass, chunk, mb, {send, slot.chunk, mb, peer, peer_chunk}});
    at(peer).push_back({end, 0, pass, chunk, mb, {receive, peer_chunk, mb, rank, slot.chunk}});
  }

  std::vector<std::vector<Action>> take() {
    std::vector<std::vector<Action>> out;
    for (auto& list : placed_) {
      std::sort(list.begin(), list.end(), [](const Placed& a, const Placed& b) { return a.key() < b.key(); });
      std::vector<Action> actions;
      actions.reserve(list.size());
      for (const Placed& p : list) actions.push_back(p.action);
      out.push_back(std::move(actions));
    }
    return out;
  }

 private:
  std::vector<Placed>& at(int rank) { return placed_[static_cast<size_t>(rank)]; }

  const Schedule& s_;
  std::vector<std::vector<Placed>> placed_;
};

}  // namespace

std::vector<std::vector<Action>> passes_with_messages(const Schedule& schedule) {
  const auto starts = slot_starts(schedule);
  Placement placement(schedule);
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const auto& slots = schedule.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < slots.size(); ++i) {
      placement.add(rank, slots[i], starts[static_cast<size_t>(rank)][i]);
    }
  }
  return placement.take();
}

}  // namespace lockstep::parallel
