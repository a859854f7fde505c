#include "sim/fluid_step.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>

#include "cost/op_prices.hpp"
#include "sim/fluid_collective.hpp"

namespace lockstep::tests {

namespace {

using model::Axis;
using parallel::Action;
using Kind = parallel::ActionKind;
using MessageId = std::tuple<bool, int, int>;  // forward, chunk, micro-batch, at the receiver

struct ProgramOp {
  const Action* action;
  std::optional<model::Op> op;  // none: the action has none
  bool first_of_action;
};

struct Message {
  int to = 0;
  double bytes = 0;
  MessageId id;
};

// A kernel that is under way.
struct Kernel {
  double left = 0, since = 0, pace = 1;
  int64_t version = 0;  // of the event that ends it
  bool running = false;
};

struct FluidRank {
  int id = 0;
  parallel::Coordinates at;
  std::vector<ProgramOp> ops;
  size_t next = 0;
  bool begun = false;  // the present action's waiting is over
  bool busy = false;   // an op that the rank stands at is under way
  Kernel kernel;
  std::deque<size_t> queue;         // data-parallel collectives, as positions in the program
  std::map<int, size_t> unsharded;  // by chunk, its latest unshard's last collective
  std::optional<size_t> reduced;    // the latest reduction's
  std::deque<Message> sends;        // the first is on its way
  std::set<MessageId> posted, arrived;
  double finish = 0;
};

bool goes_on_beside(Kind kind) {
  return kind == Kind::unshard || kind == Kind::reduce_gradients || kind == Kind::gather_parameters;
}

class FluidStep {
 public:
  FluidStep(const parallel::Layout& layout, const std::vector<parallel::Program>& programs)
      : layout_(layout),
        mesh_(layout.mesh()),
        prices_(layout.run()),
        fabric_(layout.run().cluster, mesh_.size(), layout.run().simulate.slow_links,
                static_cast<uint64_t>(layout.run().simulate.seed)),
        network_(fabric_),
        collectives_(layout.run(), mesh_, fabric_, network_),
        ranks_(static_cast<size_t>(mesh_.size())) {
    for (size_t id = 0; id < ranks_.size(); ++id) {
      FluidRank& r = ranks_[id];
      r.id = static_cast<int>(id);
      r.at = mesh_.coordinates(r.id);
      for (const Action& action : programs[static_cast<size_t>(r.at.pp)].actions) {
        bool first = true;
        for (const model::Op& op : parallel::action_ops(layout, r.at.pp, action)) {
          r.ops.push_back({&action, op, first});
          first = false;
        }
        if (first) r.ops.push_back({&action, std::nullopt, true});
      }
      network_.at(0, [this, &r] { go_on(r); });
    }
  }

  FluidResult run() {
    network_.run();
    FluidResult result;
    for (const FluidRank& r : ranks_) {
      if (r.next < r.ops.size() || !r.queue.empty()) throw std::runtime_error("ranks wait in vain");
      result.finish.push_back(r.finish);
      result.seconds = std::max(result.seconds, r.finish);
    }
    return result;
  }

 private:
  // As far as the rank gets now. Whatever it may wait for calls this again.
  void go_on(FluidRank& r) {
    while (!r.busy && r.next < r.ops.size()) {
      if (r.ops[r.next].first_of_action && !r.begun && !may_begin(r)) break;
      r.begun = true;
      execute(r);
    }
    set_pace(r);
    r.finish = network_.now();
  }

  void end_op(FluidRank& r) {
    r.busy = false;
    ++r.next;
    r.begun = r.next < r.ops.size() && !r.ops[r.next].first_of_action;
  }

  static bool is_through(const FluidRank& r, size_t position) {
    return r.queue.empty() || r.queue.front() > position;
  }

  bool may_begin(FluidRank& r) {
    const Action& a = *r.ops[r.next].action;
    const MessageId id{a.kind == Kind::forward || a.kind == Kind::receive_forward, a.chunk, a.micro_batch};
    if (parallel::is_receive(a.kind)) r.posted.insert(id);
    if (a.kind == Kind::forward || parallel::goes_back(a.kind)) {
      if (r.posted.contains(id) && !r.arrived.contains(id)) return false;
    }
    if (parallel::is_pass(a.kind) && r.unsharded.contains(a.chunk)) {
      return is_through(r, r.unsharded[a.chunk]);
    }
    if (a.kind == Kind::reduce_gradients && !layout_.gradients_persist() && r.reduced) {
      return is_through(r, *r.reduced);
    }
    const bool waits_for_all = a.kind == Kind::gather_gradients || a.kind == Kind::sum_tied_gradients ||
                               a.kind == Kind::gradient_norm;
    return !waits_for_all || r.queue.empty();
  }

  void execute(FluidRank& r) {
    const ProgramOp& p = r.ops[r.next];
    if (!p.op || p.op->kind == model::OpKind::receive) return end_op(r);
    r.busy = true;
    if (cost::is_kernel(p.op->kind)) return start_kernel(r, prices_.kernel_seconds(*p.op));
    if (p.op->kind == model::OpKind::send) return send(r, *p.action, *p.op);
    if (p.op->axis == Axis::dp_cp) return queue(r, *p.action);
    meet(r, *p.op);
  }

  void start_kernel(FluidRank& r, double seconds) {
    r.kernel.running = true;
    r.kernel.left = seconds;
    r.kernel.since = network_.now();
    r.kernel.pace = 0;  // set_pace() starts it
  }

  void set_pace(FluidRank& r) {
    Kernel& k = r.kernel;
    const bool shares = !r.queue.empty() || !r.sends.empty();
    const double pace = shares ? 1 + layout_.run().cluster.communication_slowdown : 1;
    if (!k.running || k.pace == pace) return;
    if (k.pace > 0) k.left -= (network_.now() - k.since) / k.pace;
    k.since = network_.now();
    k.pace = pace;
    network_.at(network_.now() + std::max(k.left, 0.0) * pace, [this, &r, version = ++k.version] {
      if (!r.kernel.running || r.kernel.version != version) return;
      r.kernel.running = false;
      end_op(r);
      go_on(r);
    });
  }

  void send(FluidRank& r, const Action& a, const model::Op& op) {
    parallel::Coordinates c = r.at;
    c.pp = a.peer;
    r.sends.push_back({mesh_.rank(c),
                       static_cast<double>(op.bytes),
                       {a.kind == Kind::send_forward, a.peer_chunk, a.micro_batch}});
    if (r.sends.size() == 1) start_message(r);
    end_op(r);
  }

  void start_message(FluidRank& r) {
    const Message& m = r.sends.front();
    collectives_.send(r.id, m.to, m.bytes, [this, &r] {
      const Message arrived = r.sends.front();
      r.sends.pop_front();
      if (!r.sends.empty()) start_message(r);
      set_pace(r);
      FluidRank& to = ranks_[static_cast<size_t>(arrived.to)];
      to.arrived.insert(arrived.id);
      go_on(to);
    });
  }

  // Tensor- and context-parallel and pipeline collectives: all ranks of the group stand still.
  void meet(FluidRank& r, const model::Op& op) {
    const std::vector<int> group = mesh_.group(op.axis, r.id);
    size_t& come = come_[{op.axis, group.front()}];
    if (++come < group.size()) return;
    come = 0;
    collectives_.start({op.kind, op.axis, op.bytes}, r.id, [this, group] {
      for (const int id : group) end_op(ranks_[static_cast<size_t>(id)]);
      for (const int id : group) go_on(ranks_[static_cast<size_t>(id)]);
    });
  }

  void queue(FluidRank& r, const Action& a) {
    r.queue.push_back(r.next);
    if (a.kind == Kind::unshard) r.unsharded[a.chunk] = r.next;
    if (a.kind == Kind::reduce_gradients) r.reduced = r.next;
    const bool is_first = r.queue.size() == 1;
    if (goes_on_beside(a.kind)) end_op(r);
    if (is_first) join(r);
  }

  // The rank's data-parallel stream is free for the first in its queue.
  void join(FluidRank& r) {
    const std::vector<int> group = mesh_.group(Axis::dp_cp, r.id);
    size_t& come = come_[{Axis::dp_cp, group.front()}];
    if (++come < group.size()) return;
    come = 0;
    const model::Op& op = *r.ops[r.queue.front()].op;
    collectives_.start({op.kind, op.axis, op.bytes}, r.id, [this, group] {
      for (const int id : group) end_queued(ranks_[static_cast<size_t>(id)]);
      for (const int id : group) go_on(ranks_[static_cast<size_t>(id)]);
    });
  }

  void end_queued(FluidRank& r) {
    const size_t position = r.queue.front();
    r.queue.pop_front();
    if (!r.queue.empty()) join(r);
    if (r.busy && position == r.next) end_op(r);  // it stood there
  }

  const parallel::Layout& layout_;
  const parallel::Mesh& mesh_;
  cost::OpPrices prices_;
  cluster::Fabric fabric_;
  FluidNetwork network_;
  FluidCollectives collectives_;
  std::vector<FluidRank> ranks_;
  std::map<std::pair<Axis, int>, size_t> come_;  // by axis and first rank of the group: who is at its next
};

}  // namespace

FluidResult fluid_step(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  return FluidStep(layout, programs).run();
}

}  // namespace lockstep::tests
