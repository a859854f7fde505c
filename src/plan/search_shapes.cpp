#include "plan/search_shapes.hpp"

#include <algorithm>
#include <set>

namespace lockstep::plan {

namespace {

using Kind = parallel::ActionKind;
using parallel::Action;

double& at(ByPlace& values, ChunkPlace place) { return values[static_cast<size_t>(place)]; }

Running running_of(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return Running::forward;
    case Kind::backward:
      return Running::backward;
    case Kind::backward_input:
      return Running::backward_input;
    case Kind::backward_weight:
      return Running::backward_weight;
    default:
      return Running::reduction;
  }
}

// Whether `a` holds at least as much of everything.
bool covers(const Moment& a, const Moment& b) {
  if (a.running != b.running || a.of != b.of || a.messages < b.messages) return false;
  for (size_t p = 0; p < chunk_places; ++p) {
    if (a.live[p] < b.live[p] || a.stashed[p] < b.stashed[p] || a.gradients[p] < b.gradients[p] ||
        a.gathered[p] < b.gathered[p] || a.norms[p] < b.norms[p]) {
      return false;
    }
  }
  return true;
}

// Keeps what nothing else covers.
void keep(std::vector<Moment>& all, const Moment& moment) {
  if (std::any_of(all.begin(), all.end(), [&](const Moment& m) { return covers(m, moment); })) return;
  std::erase_if(all, [&](const Moment& m) { return covers(moment, m); });
  all.push_back(moment);
}

// Follows a stage as plan/memory.cpp does, which has the rules.
class Walk {
 public:
  Walk(const parallel::Layout& layout, int stage)
      : layout_(layout), stage_(stage), sharded_(layout.mesh().size(model::Axis::dp_cp) > 1) {
    if (!layout.gradients_persist()) return;
    for (int c = 0; c < layout.virtual_stages(); ++c) allocate(c);
  }

  StageMoments of(const parallel::Program& program) {
    for (const Action& action : program.actions) take(action);
    ByPlace chunks{};
    for (int c = 0; c < layout_.virtual_stages(); ++c) at(chunks, place(c)) += 1;
    for (size_t p = 0; p < chunk_places; ++p) {
      if (chunks[p] > 0) out_.unshards[p] /= chunks[p];
    }
    return std::move(out_);
  }

 private:
  ChunkPlace place(int chunk) const {
    if (stage_ == 0 && chunk == 0) return ChunkPlace::first;
    const bool last = stage_ + 1 == layout_.stages() && chunk + 1 == layout_.virtual_stages();
    return last ? ChunkPlace::last : ChunkPlace::middle;
  }

  void take(const Action& a) {
    if (a.kind == Kind::unshard) at(out_.unshards, place(a.chunk)) += 1;
    if (sharded_ && layout_.zero() == 3) {
      if (a.kind == Kind::unshard) at(now_.gathered, place(a.chunk)) += 1;
      if (a.kind == Kind::reshard) at(now_.gathered, place(a.chunk)) -= 1;
    }
    if (parallel::is_receive(a.kind)) now_.messages += 1;
    if (parallel::is_send(a.kind)) {
      if (sent_) now_.messages -= 1;
      sent_ = true;
    }
    if (parallel::is_pass(a.kind)) pass(a);
    if (a.kind == Kind::reduce_gradients) reduce(a.chunk);
  }

  void pass(const Action& a) {
    const ChunkPlace p = place(a.chunk);
    const model::ChunkContent& content = layout_.chunk(stage_, a.chunk);
    const bool forward = a.kind == Kind::forward;
    const bool takes = forward ? !content.embedding : parallel::goes_back(a.kind) && !content.head;
    const bool gives = forward ? !content.head : parallel::goes_back(a.kind) && !content.embedding;
    if (parallel::ends_backward(a.kind)) allocate(a.chunk);
    if (a.kind == Kind::backward_input) at(now_.norms, p) += 1;
    note(running_of(a.kind), p);
    if (forward) at(now_.live, p) += 1;
    if (parallel::goes_back(a.kind)) at(now_.live, p) -= 1;
    if (a.kind == Kind::backward_input) at(now_.stashed, p) += 1;
    if (a.kind == Kind::backward_weight) {
      at(now_.stashed, p) -= 1;
      at(now_.norms, p) -= 1;
    }
    now_.messages += (gives ? 1 : 0) - (takes ? 1 : 0);
  }

  void allocate(int chunk) {
    if (allocated_.insert(chunk).second) at(now_.gradients, place(chunk)) += 1;
  }
  void reduce(int chunk) {
    allocate(chunk);
    if (!layout_.gradients_persist()) end_reductions();
    note(Running::reduction, place(chunk));
    if (layout_.gradients_persist() || layout_.reduces_in_place()) return;
    allocated_.erase(chunk);
    under_way_.insert(chunk);
    if (!sharded_) end_reductions();
  }
  void end_reductions() {
    for (const int chunk : under_way_) at(now_.gradients, place(chunk)) -= 1;
    under_way_.clear();
  }

  void note(Running running, ChunkPlace of) {
    now_.running = running;
    now_.of = of;
    keep(out_.moments, now_);
  }

  const parallel::Layout& layout_;
  int stage_;
  bool sharded_;
  Moment now_;
  bool sent_ = false;
  std::set<int> allocated_, under_way_;
  StageMoments out_;
};

void add_stage(StageMoments& to, const StageMoments& more) {
  for (const Moment& moment : more.moments) keep(to.moments, moment);
  for (size_t p = 0; p < chunk_places; ++p) to.unshards[p] += more.unshards[p];
}

// A model of one layer a chunk in this pipeline.
PipelineMoments walked(const PipelineShapes::Key& key, int micro_batches) {
  config::RunFile run;
  config::ModelConfig& m = run.model;
  m.layers = int64_t{key.stages} * key.chunks;
  m.hidden = 2;
  m.heads = m.kv_heads = 1;
  m.ffn = 1;
  m.vocab = 256;
  config::ParallelConfig& p = run.parallel;
  p.pp = key.stages;
  p.virtual_stages = key.chunks;
  p.dp = key.sharded ? 2 : 1;
  p.schedule = key.schedule;
  p.zero = key.zero;
  p.reshard_after_forward = key.reshards;
  run.train.global_batch = p.dp * micro_batches;
  run.train.sequence = 1;
  const parallel::Layout layout(run);
  const std::vector<parallel::Program> programs = parallel::build_step_programs(layout);
  const auto of = [&](int stage) { return Walk(layout, stage).of(programs[static_cast<size_t>(stage)]); };
  PipelineMoments out;
  out.first = of(0);
  if (key.stages > 2) out.middle = of(1);
  // The second stage is the fullest of the middle ones, but where weights' gradients are put off.
  const bool differ =
      key.schedule == config::ScheduleKind::zero_bubble_h1 || (key.zero == 3 && key.chunks > 1);
  for (int stage = 2; differ && stage + 1 < key.stages; ++stage) add_stage(out.middle, of(stage));
  for (double& unshards : out.middle.unshards) unshards /= differ ? std::max(key.stages - 2, 1) : 1;
  if (key.stages > 1) out.last = of(key.stages - 1);
  return out;
}

void add_unshards(StageMoments& to, const StageMoments& longer, const StageMoments& shorter, double times) {
  for (size_t p = 0; p < chunk_places; ++p) {
    to.unshards[p] += times * (longer.unshards[p] - shorter.unshards[p]);
  }
}

// So many micro-batches show all that a longer pipeline does too; further groups repeat.
int enough(const PipelineShapes::Key& key) {
  const int m = key.micro_batches, p = key.stages;
  if (key.schedule == config::ScheduleKind::gpipe) return std::min(m, 2);
  if (key.chunks == 1) return std::min(m, 3 * p + 2);
  return m <= 4 * p ? m : 3 * p + m % p;
}

}  // namespace

const PipelineMoments& PipelineShapes::of(const Key& key) {
  const auto [known, is_new] = known_.try_emplace(key);
  PipelineMoments& out = known->second;
  if (!is_new) return out;
  const int walks = enough(key);
  const int rest = key.micro_batches - walks;
  out = walked(key, walks);
  if (rest == 0) return out;
  if (key.schedule == config::ScheduleKind::gpipe && key.stages > 1) {
    for (StageMoments* stage : {&out.first, &out.middle, &out.last}) {
      for (Moment& m : stage->moments) {
        for (double& live : m.live) live += live > 0 ? rest : 0;
      }
    }
  }
  if (key.zero == 3 && key.chunks > 1) {
    const PipelineMoments longer = walked(key, walks + key.stages);
    const PipelineMoments shorter = walked(key, walks);
    const double groups = static_cast<double>(rest) / key.stages;
    add_unshards(out.first, longer.first, shorter.first, groups);
    add_unshards(out.middle, longer.middle, shorter.middle, groups);
    add_unshards(out.last, longer.last, shorter.last, groups);
  }
  return out;
}

}  // namespace lockstep::plan
