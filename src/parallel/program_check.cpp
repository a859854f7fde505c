#include "parallel/program_check.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"

namespace lockstep::parallel {

namespace {

using Kind = ActionKind;

[[noreturn]] void fail(const Program& program, const Action& action, const std::string& why) {
  throw RunError("stage " + std::to_string(program.stage) + ", " + describe(action) + ": " + why);
}

// One stage on its way through its program.
class Walker {
 public:
  Walker(const Layout& layout, const Program& program) : layout_(layout), program_(program) {}

  const Action* current() const { return at_ < program_.actions.size() ? &program_.actions[at_] : nullptr; }
  void advance() { ++at_; }
  const Program& program() const { return program_; }

  // Takes the current action, which is not a message.
  void compute() {
    const Action& a = *current();
    if (is_pass(a.kind)) {
      pass(a);
    } else if (a.kind == Kind::unshard) {
      if (layout_.zero() != 3 && !layout_.gathers_at_start()) {
        fail(program_, a, "parameters are not sharded");
      }
      if (!resident_.insert(a.chunk).second) fail(program_, a, "the parameters are gathered already");
    } else if (a.kind == Kind::reshard) {
      if (resident_.erase(a.chunk) == 0) fail(program_, a, "the parameters are not gathered");
    } else if (a.kind == Kind::reduce_gradients) {
      reduce(a);
    } else {
      once(a);
    }
    at_ += 1;
  }

  void received(const Action& a) {
    auto& inputs = a.kind == Kind::receive_forward ? hidden_ : gradients_;
    if (!inputs.insert({a.chunk, a.micro_batch}).second) fail(program_, a, "received twice");
  }
  void check_send(const Action& a) const {
    const auto& done = a.kind == Kind::send_forward ? forwarded_ : input_done_;
    if (!done.contains({a.chunk, a.micro_batch})) fail(program_, a, "sent before it was computed");
  }

  void check_end() const {
    const size_t expected = static_cast<size_t>(chunks()) * static_cast<size_t>(layout_.micro_batches());
    const std::string stage = "stage " + std::to_string(program_.stage) + ": ";
    if (forwarded_.size() != expected) throw RunError(stage + "not every micro-batch has its forward");
    if (backwarded_.size() != expected) throw RunError(stage + "not every micro-batch has its backward");
    if (!live_.empty()) throw RunError(stage + "activations are left over at the end");
    if (!hidden_.empty() || !gradients_.empty()) throw RunError(stage + "a received message was never used");
    if (layout_.zero() == 3 && !resident_.empty()) {
      throw RunError(stage + "gathered parameters are left over at the end");
    }
    // Their presence proves that of all before them.
    const Kind last = layout_.gathers_after_update() ? Kind::gather_parameters : Kind::optimizer_step;
    for (int chunk = 0; chunk < chunks(); ++chunk) {
      if (!done_.contains({last, chunk})) {
        throw RunError(stage + "chunk " + std::to_string(chunk) + " has no " + to_string(last));
      }
    }
  }
  int peak() const { return peak_; }

 private:
  using Key = std::pair<int, int>;  // chunk, micro-batch

  void pass(const Action& a) {
    const Key key{a.chunk, a.micro_batch};
    need(a, Kind::load_batch, -1);
    if (layout_.zero() == 3 && !resident_.contains(a.chunk))
      fail(program_, a, "its parameters are not gathered");
    if (a.kind == Kind::forward) {
      take_input(a, first(a), hidden_, forwarded_, {a.chunk - 1, a.micro_batch},
                 "its input was never received");
      if (!forwarded_.insert(key).second) fail(program_, a, "computed twice");
      live_.insert(key);
      peak_ = std::max(peak_, static_cast<int>(live_.size()));
      return;
    }
    if (goes_back(a.kind)) {
      take_input(a, last(a), gradients_, input_done_, {a.chunk + 1, a.micro_batch},
                 "its gradient was never received");
      if (!live_.contains(key)) fail(program_, a, "no activations are held for it");
      if (!input_done_.insert(key).second) fail(program_, a, "computed twice");
    }
    if (!ends_backward(a.kind)) return;
    if (!input_done_.contains(key)) fail(program_, a, "its input's gradient is not computed before it");
    if (live_.erase(key) == 0) fail(program_, a, "no activations are held for it");
    if (!backwarded_.insert(key).second) fail(program_, a, "computed twice");
  }
  // From a message, or on a lone stage from the chunk before.
  void take_input(const Action& a, bool none, std::set<Key>& messages, const std::set<Key>& computed,
                  Key before, const char* missing) {
    if (none) return;
    const bool there =
        layout_.stages() == 1 ? computed.contains(before) : messages.erase({a.chunk, a.micro_batch}) > 0;
    if (!there) fail(program_, a, missing);
  }

  // The chunk's micro-batches from the last reduction up to this action's, all of them and no other.
  void reduce(const Action& a) {
    const int begin = reduced_[a.chunk];
    const int size = layout_.scatters_every_micro_batch() ? 1 : layout_.replica_micro_batches();
    if (a.micro_batch != begin + size - 1) fail(program_, a, "is not the reduction that comes next");
    for (int mb = begin; mb <= a.micro_batch; ++mb) {
      if (!backwarded_.contains({a.chunk, mb})) fail(program_, a, "not every backward is before it");
    }
    if (backwarded_.contains({a.chunk, a.micro_batch + 1})) {
      fail(program_, a, "a backward of the next reduction is before it");
    }
    reduced_[a.chunk] = a.micro_batch + 1;
  }

  void need(const Action& a, Kind before, int chunk) const {
    if (done_.contains({before, chunk})) return;
    fail(program_, a, std::string("there is no ") + to_string(before) + " before it");
  }
  void need_reduced(const Action& a, int chunk) const {
    const auto found = reduced_.find(chunk);
    if (found == reduced_.end() || found->second != layout_.micro_batches()) {
      fail(program_, a, "not every gradient is reduced before it");
    }
    if (layout_.zero() == 0 && a.kind != Kind::gather_gradients) need(a, Kind::gather_gradients, chunk);
  }
  // Actions that a step has once, for each chunk or altogether, each after what it uses.
  void once(const Action& a) {
    const bool gathers = layout_.gathers_after_update();
    if ((a.kind == Kind::gather_gradients && layout_.zero() == 0) ||
        (a.kind == Kind::sum_tied_gradients && layout_.has_tied_copy(program_.stage, a.chunk))) {
      need_reduced(a, a.chunk);
    } else if (a.kind == Kind::gradient_norm) {
      for (int chunk = 0; chunk < chunks(); ++chunk) {
        need_reduced(a, chunk);
        if (layout_.has_tied_copy(program_.stage, chunk)) need(a, Kind::sum_tied_gradients, chunk);
      }
    } else if (a.kind == Kind::optimizer_step) {
      need(a, Kind::gradient_norm, -1);
    } else if (a.kind == Kind::gather_parameters && gathers) {
      need(a, Kind::optimizer_step, a.chunk);
    } else if (a.kind != Kind::load_batch) {
      fail(program_, a, "does not belong into a training step of this layout");
    }
    if (!done_.insert({a.kind, a.chunk}).second) fail(program_, a, "done twice");
  }
  int chunks() const { return layout_.virtual_stages(); }
  int model_chunk(const Action& a) const { return a.chunk * layout_.stages() + program_.stage; }
  bool first(const Action& a) const { return model_chunk(a) == 0; }
  bool last(const Action& a) const { return model_chunk(a) == layout_.stages() * chunks() - 1; }

  const Layout& layout_;
  const Program& program_;
  size_t at_ = 0;
  int peak_ = 0;
  std::set<Key> live_, forwarded_, input_done_, backwarded_, hidden_, gradients_;
  std::set<int> resident_;               // chunks whose parameters are gathered
  std::map<int, int> reduced_;           // by chunk: micro-batches reduced so far
  std::set<std::pair<Kind, int>> done_;  // once-actions: kind and chunk (-1: of all chunks)
};

bool meet(const Action& send, int sender, const Action& receive, int receiver) {
  const Kind wanted = send.kind == Kind::send_forward ? Kind::receive_forward : Kind::receive_backward;
  return receive.kind == wanted && send.peer == receiver && receive.peer == sender &&
         send.micro_batch == receive.micro_batch && send.peer_chunk == receive.chunk &&
         receive.peer_chunk == send.chunk;
}

// Takes one action where possible; a message is taken when both ends stand at it.
bool advance(std::vector<Walker>& walkers, size_t stage) {
  const Action* a = walkers[stage].current();
  if (a == nullptr || is_receive(a->kind)) return false;
  if (!is_send(a->kind)) {
    walkers[stage].compute();
    return true;
  }
  walkers[stage].check_send(*a);
  if (a->peer < 0 || static_cast<size_t>(a->peer) >= walkers.size()) {
    fail(walkers[stage].program(), *a, "there is no such stage");
  }
  Walker& peer = walkers[static_cast<size_t>(a->peer)];
  const Action* b = peer.current();
  if (b == nullptr || !meet(*a, static_cast<int>(stage), *b, a->peer)) return false;
  peer.received(*b);
  peer.advance();
  walkers[stage].advance();
  return true;
}

}  // namespace

ProgramReport check_step_programs(const Layout& layout, const std::vector<Program>& programs) {
  std::vector<Walker> walkers;
  for (const Program& program : programs) walkers.emplace_back(layout, program);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < walkers.size(); ++stage) {
      while (advance(walkers, stage)) moved = true;
    }
  }
  for (const Walker& w : walkers) {
    if (w.current() != nullptr) {
      fail(w.program(), *w.current(), "waits forever: with blocking sends these programs deadlock");
    }
  }
  ProgramReport report;
  for (const Walker& w : walkers) {
    w.check_end();
    report.peak_live.push_back(w.peak());
  }
  return report;
}

}  // namespace lockstep::parallel
