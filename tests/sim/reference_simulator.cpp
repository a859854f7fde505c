#include "sim/reference_simulator.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <stdexcept>
#include <tuple>

#include "cost/op_prices.hpp"
#include "sim/jitter.hpp"
#include "sim/reference_batch.hpp"
#include "sim/reference_crowding.hpp"
#include "sim/reference_host.hpp"
#include "sim/reference_imperfection.hpp"
#include "sim/reference_network.hpp"
#include "sim/reference_rank.hpp"

namespace lockstep::tests {

namespace {

using model::Axis;
using parallel::Action;
using Kind = parallel::ActionKind;

config::RunFile with_links_of(config::RunFile run, const sim::StepOptions& options) {
  run.simulate.slow_links = options.slow_links;
  run.simulate.seed = options.seed;
  return run;
}

class Reference {
 public:
  Reference(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
            const sim::StepOptions& options, Communication communication)
      : layout_(layout),
        mesh_(layout.mesh()),
        prices_(layout.run()),
        network_(with_links_of(layout.run(), options), layout.mesh(), communication),
        options_(options),
        imperfection_(layout, options),
        crowding_(layout, prices_, network_, options.contention),
        shape_(options.jitter ? options.op_jitter : 0, options.jitter ? options.tail_probability : 0,
               options.tail_factor) {
    for (int id = 0; id < mesh_.size(); ++id) add_rank(id, programs);
    for (int id = 0; id < mesh_.size(); ++id) at(0, [this, id] { resume(id); });
  }

  ReferenceResult run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      event.what();
    }
    ReferenceResult result;
    double longest_read = 0;
    for (Rank& r : ranks_) {
      if (r.next != r.ops.size() || !r.dp_queue.empty()) throw std::runtime_error("deadlock");
      const double end = std::max(r.clock, r.dp_free);
      r.out.dp += end - r.clock;
      r.out.finish = end;
      result.seconds = std::max(result.seconds, end);
      for (const FlatOp& op : r.ops) {
        result.ops += op.none ? 0 : 1;
        const bool reads = !op.none && op.op.kind == model::OpKind::host;
        if (reads) longest_read = std::max(longest_read, read_seconds(layout_.run(), op.op));
      }
      result.ranks.push_back(r.out);
    }
    if (layout_.run().data.prefetch && longest_read > result.seconds) begin_later(result, longest_read);
    return result;
  }

 private:
  struct Event {
    double time;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::tie(other.time, other.order) < std::tie(time, order);
    }
  };

  void at(double time, std::function<void()> what) { events_.push({time, order_++, std::move(what)}); }

  void add_rank(int id, const std::vector<parallel::Program>& programs) {
    Rank r;
    r.id = id;
    r.at = mesh_.coordinates(id);
    r.speed = imperfection_.time_factor(id);
    r.key = sim::lane_key(static_cast<uint64_t>(options_.seed), options_.step, id);
    r.timeline = std::make_unique<ReferenceTimeline>(
        layout_.run().cluster.communication_slowdown,
        [this, id](const cost::Transfer& what, const std::vector<cost::Transfer>& beside) {
          return network_.slowing(what, beside, id);
        });
    r.pause_at = imperfection_.pause_at(id, programs[static_cast<size_t>(r.at.pp)]);
    uint32_t index = 0;
    for (const Action& action : programs[static_cast<size_t>(r.at.pp)].actions) {
      const auto ops = parallel::action_ops(layout_, r.at.pp, action);
      for (size_t i = 0; i < ops.size(); ++i) {
        r.ops.push_back({&action, ops[i], i == 0, i + 1 == ops.size(), false});
        r.index.push_back(index++);
      }
      if (ops.empty()) {
        r.ops.push_back({&action, {}, true, true, true});
        r.index.push_back(0);
      }
    }
    ranks_.push_back(std::move(r));
  }

  double draw(const Rank& r, uint32_t index) const { return shape_.factor(r.key, sim::op_key(index)); }
  // Of a transfer that `r` draws for.
  double transfer_seconds(const cost::Transfer& transfer, const Rank& r, uint32_t index) {
    return network_.seconds(transfer, r.id) * draw(r, index);
  }
  double lost_seconds(const cost::Transfer& transfer, const Rank& r, uint32_t index) const {
    return imperfection_.collective_retransmit(r.id, transfer.axis, r.key, index);
  }

  // Executes the rank's next op; every op that takes time ends this and comes back by an event.
  void resume(int id) {
    Rank& r = ranks_[static_cast<size_t>(id)];
    r.clock = now_;
    while (r.next < r.ops.size()) {
      if (!begin_action(r)) return;
      if (!execute(r)) return;
    }
  }

  bool begin_action(Rank& r) {
    const FlatOp& f = r.ops[r.next];
    if (!f.first_of_action || r.waited) return true;
    const Action& a = *f.action;
    const MessageId id{a.kind == Kind::forward || a.kind == Kind::receive_forward, a.chunk, a.micro_batch};
    if (a.kind == Kind::receive_forward || a.kind == Kind::receive_backward) r.posted.insert(id);
    if ((a.kind == Kind::forward || a.kind == Kind::backward || a.kind == Kind::backward_input) &&
        r.posted.contains(id)) {
      if (!r.arrived.contains(id)) {
        r.blocked_on_message = true;
        blocked_since_[r.id] = r.clock;
        return false;
      }
      r.arrived.erase(id);
      r.posted.erase(id);
    }
    if (const auto until = needed_position(layout_, r, a); until && !is_through(r, *until)) {
      block_on_dp(r, *until);
      return false;
    }
    if (!r.paused && r.pause_at == f.action) {
      r.paused = true;
      at(now_ + options_.garbage_collection_seconds, [this, id = r.id] { resume(id); });
      return false;
    }
    r.waited = true;
    r.pass_start = r.clock;
    if (a.kind == Kind::forward && r.out.first_forward < 0) r.out.first_forward = r.clock;
    return true;
  }

  static bool is_through(const Rank& r, size_t position) {
    return r.dp_queue.empty() || r.dp_queue.front() > position;
  }
  void block_on_dp(Rank& r, size_t position) {
    r.blocked_on_dp = true;
    r.blocked_until = position;
    blocked_since_[r.id] = now_;
  }

  // Whether a pass that is through on the device waits for its host; an event ends it then.
  bool waits_for_host(Rank& r) {
    const FlatOp& f = r.ops[r.next];
    if (!f.last_of_action) return false;
    const double queued = r.pass_start + host_seconds_of(layout_.run(), r, *f.action);
    if (queued <= now_) return false;
    at(queued, [this, &r] { finish_op(r); });
    return true;
  }

  void done_with(Rank& r) {
    const FlatOp& f = r.ops[r.next];
    if (f.last_of_action) {
      if (f.action->kind == Kind::forward || is_backward(f.action->kind)) {
        r.out.passes += r.clock - r.pass_start;
      }
      if (is_backward(f.action->kind)) r.out.last_backward = r.clock;
      r.waited = false;
    }
    ++r.next;
  }

  // False: the rank waits or works, an event will bring it back. True: on to the next op now.
  bool execute(Rank& r) {
    const FlatOp& f = r.ops[r.next];
    const uint32_t index = r.index[r.next];
    if (f.none || f.op.kind == model::OpKind::receive) {
      if (waits_for_host(r)) return false;
      done_with(r);
      return true;
    }
    if (cost::is_kernel(f.op.kind)) {
      const double seconds = prices_.kernel_seconds(f.op) * r.speed * draw(r, index);
      const size_t work = r.timeline->start_kernel(now_, seconds);
      r.open[work].happens = [this, &r, &f, began = now_] {
        if (f.action->kind == Kind::load_batch) r.out.data += now_ - began;
        if (f.action->kind == Kind::gradient_norm || f.action->kind == Kind::optimizer_step) {
          r.out.optimizer += now_ - began;
        }
        finish_op(r);
      };
      tell(r);
      return false;
    }
    if (f.op.kind == model::OpKind::send) {
      start_send(r, f, index);
      done_with(r);
      return true;
    }
    if (f.op.axis == Axis::dp_cp) {
      const Kind kind = f.action->kind;
      r.dp_queue.push_back(r.next);
      r.dp_places.push_back(r.timeline->queue_collective({f.op.kind, f.op.axis, f.op.bytes}));
      if (kind == Kind::unshard) r.unsharded[f.action->chunk] = r.next;
      if (kind == Kind::reduce_gradients) {
        r.reduced = r.next;
        r.any_reduced = true;
      }
      if (r.dp_queue.size() == 1) start_dp(r);
      if (kind == Kind::unshard || kind == Kind::reduce_gradients || kind == Kind::gather_parameters) {
        done_with(r);
        return true;
      }
      block_on_dp(r, r.next);
      return false;
    }
    meet(r, f);
    return false;
  }

  void finish_op(Rank& r) {
    if (waits_for_host(r)) return;
    r.clock = now_;
    done_with(r);
    resume(r.id);
  }

  // Sees to it that ends are told when they come; they move when something beside them ends.
  void tell(Rank& r) {
    for (auto& [work, open] : r.open) {
      const double end = r.timeline->end_of(work);
      if (end == open.told) continue;
      open.told = end;
      at(std::max(end, now_), [this, &r, work = work, end] {
        const auto found = r.open.find(work);
        if (found == r.open.end() || found->second.told != end) return;
        const auto happens = std::move(found->second.happens);
        r.open.erase(found);
        r.timeline->finish(work, end);
        happens();
      });
    }
  }

  void start_send(Rank& r, const FlatOp& f, uint32_t index) {
    const Action& a = *f.action;
    parallel::Coordinates c = r.at;
    c.pp = a.peer;
    const int to = mesh_.rank(c);
    const int stages = mesh_.size(Axis::pp);
    const cost::Transfer message{f.op.kind, f.op.axis, f.op.bytes, (a.peer - r.at.pp + stages) % stages};
    const size_t work =
        r.timeline->start_message(now_, transfer_seconds(message, r, index),
                                  imperfection_.message_retransmit(r.id, to, r.key, index), message);
    const MessageId id{a.kind == Kind::send_forward, a.peer_chunk, a.micro_batch};
    r.open[work].happens = [this, to, id] { deliver(to, id); };
    tell(r);
  }

  void deliver(int to, const MessageId& id) {
    Rank& r = ranks_[static_cast<size_t>(to)];
    r.arrived[id] = now_;
    if (!r.blocked_on_message) return;
    const Action& a = *r.ops[r.next].action;
    if (id != MessageId{a.kind == Kind::forward, a.chunk, a.micro_batch}) return;  // backwards otherwise
    r.blocked_on_message = false;
    r.out.message += now_ - blocked_since_[to];
    resume(to);
  }

  // Tensor- and context-parallel and pipeline collectives: all ranks of the group stand still.
  void meet(Rank& r, const FlatOp& f) {
    const auto group = mesh_.group(f.op.axis, r.id);
    const int occurrence = met_[{static_cast<int>(f.op.axis), r.id}]++;
    Gathering& g = gatherings_[{static_cast<int>(f.op.axis), group.front(), occurrence}];
    ++g.arrived;
    blocked_since_[r.id] = now_;
    if (g.arrived < group.size()) return;
    const Rank& first = ranks_[static_cast<size_t>(group.front())];
    const cost::Transfer transfer{f.op.kind, f.op.axis, f.op.bytes};
    const double seconds =
        transfer_seconds(transfer, first, first.index[first.next]) * prices_.waited_share(f.op);
    const double lost = lost_seconds(transfer, first, first.index[first.next]);
    for (const int id : group) {
      Rank& member = ranks_[static_cast<size_t>(id)];
      const size_t work = member.timeline->start_transfer(now_, seconds, lost, transfer);
      member.open[work].happens = [this, &g, group] {
        if (++g.ended == group.size()) end_meeting(group);
      };
      tell(member);
    }
  }

  void end_meeting(const std::vector<int>& group) {
    for (const int id : group) {
      Rank& member = ranks_[static_cast<size_t>(id)];
      const Axis axis = member.ops[member.next].op.axis;
      const bool over_tp = axis == Axis::tp || axis == Axis::tp_kv;
      double& booked = over_tp ? member.out.tp : axis == Axis::cp ? member.out.cp : member.out.pp_meeting;
      booked += now_ - blocked_since_[id];
    }
    for (const int id : group) at(now_, [this, id] { finish_op(ranks_[static_cast<size_t>(id)]); });
  }

  // The head of the rank's data-parallel queue joins its group.
  void start_dp(Rank& r) {
    const size_t position = r.dp_queue.front();
    const auto group = mesh_.group(Axis::dp_cp, r.id);
    Gathering& g = dp_gatherings_[{group.front(), static_cast<int>(position)}];
    ++g.arrived;
    if (g.arrived < group.size()) return;
    const Rank& first = ranks_[static_cast<size_t>(group.front())];
    const model::Op& op = r.ops[position].op;
    const double seconds = transfer_seconds({op.kind, op.axis, op.bytes}, first, first.index[position]);
    double end = 0;
    for (const int id : group) {
      const Rank& member = ranks_[static_cast<size_t>(id)];
      const size_t place = member.dp_places.front();
      end = std::max(
          end, crowding_.end(id, member.ops, position, now_, seconds, member.timeline->message_before(place),
                             member.timeline->message_gone(place)));
    }
    end += lost_seconds({op.kind, op.axis, op.bytes}, first, first.index[position]);
    for (const int id : group) at(end, [this, id] { end_dp(id); });
  }

  void end_dp(int id) {
    Rank& r = ranks_[static_cast<size_t>(id)];
    const size_t position = r.dp_queue.front();
    r.dp_queue.pop_front();
    r.timeline->end_collective(r.dp_places.front(), now_);
    r.dp_places.pop_front();
    tell(r);
    r.dp_free = now_;
    if (!r.dp_queue.empty()) start_dp(r);
    if (!r.blocked_on_dp || !is_through(r, r.blocked_until)) return;
    r.blocked_on_dp = false;
    r.out.dp += now_ - blocked_since_[id];
    r.clock = now_;
    if (position == r.next) done_with(r);
    resume(id);
  }

  const parallel::Layout& layout_;
  const parallel::Mesh& mesh_;
  cost::OpPrices prices_;
  ReferenceNetwork network_;
  sim::StepOptions options_;
  ReferenceImperfection imperfection_;
  ReferenceCrowding crowding_;
  sim::JitterShape shape_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event> events_;
  int64_t order_ = 0;
  double now_ = 0;
  std::map<int, double> blocked_since_;
  std::map<std::pair<int, int>, int> met_;
  std::map<std::tuple<int, int, int>, Gathering> gatherings_;
  std::map<std::pair<int, int>, Gathering> dp_gatherings_;
};

}  // namespace

ReferenceResult reference_step(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                               const sim::StepOptions& options, Communication communication) {
  return Reference(layout, programs, options, communication).run();
}

}  // namespace lockstep::tests
