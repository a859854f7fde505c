#include "parallel/program_check.hpp"

#include <algorithm>
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
  Walker(const Program& program, int stages, int virtual_stages, int micro_batches)
      : program_(program), stages_(stages), virtual_stages_(virtual_stages), micro_batches_(micro_batches) {}

  const Action* current() const { return at_ < program_.actions.size() ? &program_.actions[at_] : nullptr; }
  void advance() { ++at_; }
  const Program& program() const { return program_; }

  // Takes the current action, which is not a message.
  void compute() {
    const Action& a = *current();
    const auto key = std::make_pair(a.chunk, a.micro_batch);
    if (a.kind == Kind::forward) {
      need(a, Kind::load_batch, -1);
      if (!first(a) && hidden_.erase(key) == 0) fail(program_, a, "its input was never received");
      if (!forwarded_.insert(key).second) fail(program_, a, "computed twice");
      peak_ = std::max(peak_, static_cast<int>(live_.insert(key).second ? live_.size() : 0));
    } else if (a.kind == Kind::backward) {
      if (!last(a) && gradients_.erase(key) == 0) fail(program_, a, "its gradient was never received");
      if (live_.erase(key) == 0) fail(program_, a, "no activations are held for it");
      if (!backwarded_.insert(key).second) fail(program_, a, "computed twice");
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
    const auto& done = a.kind == Kind::send_forward ? forwarded_ : backwarded_;
    if (!done.contains({a.chunk, a.micro_batch})) fail(program_, a, "sent before it was computed");
  }

  void check_end() const {
    const size_t expected = static_cast<size_t>(virtual_stages_) * static_cast<size_t>(micro_batches_);
    const std::string stage = "stage " + std::to_string(program_.stage) + ": ";
    if (forwarded_.size() != expected) throw RunError(stage + "not every micro-batch has its forward");
    if (backwarded_.size() != expected) throw RunError(stage + "not every micro-batch has its backward");
    if (!live_.empty()) throw RunError(stage + "activations are left over at the end");
    if (!hidden_.empty() || !gradients_.empty()) throw RunError(stage + "a received message was never used");
    // Its presence proves that of all before it.
    for (int chunk = 0; chunk < virtual_stages_; ++chunk) {
      if (!done_.contains({Kind::gather_parameters, chunk})) {
        throw RunError(stage + "chunk " + std::to_string(chunk) + " has no " +
                       to_string(Kind::gather_parameters));
      }
    }
  }
  int peak() const { return peak_; }

 private:
  void need(const Action& a, Kind before, int chunk) const {
    if (done_.contains({before, chunk})) return;
    fail(program_, a, std::string("there is no ") + to_string(before) + " before it");
  }
  // Actions that a step has once, for each chunk or altogether, each after what it uses.
  void once(const Action& a) {
    if (a.kind == Kind::reduce_gradients) {
      for (int mb = 0; mb < micro_batches_; ++mb) {
        if (!backwarded_.contains({a.chunk, mb})) fail(program_, a, "not every backward is before it");
      }
    } else if (a.kind == Kind::gradient_norm) {
      for (int chunk = 0; chunk < virtual_stages_; ++chunk) need(a, Kind::reduce_gradients, chunk);
    } else if (a.kind == Kind::optimizer_step) {
      need(a, Kind::gradient_norm, -1);
    } else if (a.kind == Kind::gather_parameters) {
      need(a, Kind::optimizer_step, a.chunk);
    } else if (a.kind != Kind::load_batch) {
      fail(program_, a, "does not belong into a training step");
    }
    if (!done_.insert({a.kind, a.chunk}).second) fail(program_, a, "done twice");
  }
  int model_chunk(const Action& a) const { return a.chunk * stages_ + program_.stage; }
  bool first(const Action& a) const { return model_chunk(a) == 0; }
  bool last(const Action& a) const { return model_chunk(a) == stages_ * virtual_stages_ - 1; }

  using Key = std::pair<int, int>;  // chunk, micro-batch
  const Program& program_;
  int stages_, virtual_stages_, micro_batches_;
  size_t at_ = 0;
  int peak_ = 0;
  std::set<Key> live_, forwarded_, backwarded_, hidden_, gradients_;
  std::set<std::pair<Kind, int>> done_;  // once-actions: kind and chunk (-1: of all chunks)
};

bool is_send(Kind kind) { return kind == Kind::send_forward || kind == Kind::send_backward; }
bool is_receive(Kind kind) { return kind == Kind::receive_forward || kind == Kind::receive_backward; }

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

ProgramReport check_step_programs(const std::vector<Program>& programs, int virtual_stages,
                                  int micro_batches) {
  std::vector<Walker> walkers;
  for (const Program& p : programs)
    walkers.emplace_back(p, static_cast<int>(programs.size()), virtual_stages, micro_batches);
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
