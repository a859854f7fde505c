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
  if (a.running != b.running || a.of != b.of) return false;
  for (size_t i = 0; i < held_counts; ++i) {
    if (a.held[i] < b.held[i]) return false;
  }
  return true;
}

// Keeps what nothing else covers.
void keep(std::vector<Moment>& all, const Moment& moment) {
  if (std::any_of(all.begin(), all.end(), [&](const Moment& m) { return covers(m, moment); })) return;
  std::erase_if(all, [&](const Moment& m) { return covers(moment, m); });
  all.push_back(moment);
}

// Follows a stage as plan/memory.cpp does, which has the rules. A program of zero = 3 is that of any zero
// with gathers of parameters beside.
class Walk {
 public:
  Walk(const parallel::Layout& layout, int stage, int zero)
      : layout_(layout), stage_(stage), zero_(zero), gradients_persist_(zero < 2) {
    if (!gradients_persist_) return;
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

  double& held(Held what, ChunkPlace place) { return now_.held[held_at(what, place)]; }

  void take(const Action& a) {
    if (a.kind == Kind::unshard) at(out_.unshards, place(a.chunk)) += 1;
    if (zero_ == 3) {
      if (a.kind == Kind::unshard) held(Held::gathered, place(a.chunk)) += 1;
      if (a.kind == Kind::reshard) held(Held::gathered, place(a.chunk)) -= 1;
    }
    if (parallel::is_receive(a.kind)) now_.held[held_messages] += 1;
    if (parallel::is_send(a.kind)) {
      if (sent_) now_.held[held_messages] -= 1;
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
    if (a.kind == Kind::backward_input) held(Held::norms, p) += 1;
    note(running_of(a.kind), p);
    if (forward) held(Held::live, p) += 1;
    if (parallel::goes_back(a.kind)) held(Held::live, p) -= 1;
    if (a.kind == Kind::backward_input) held(Held::stashed, p) += 1;
    if (a.kind == Kind::backward_weight) {
      held(Held::stashed, p) -= 1;
      held(Held::norms, p) -= 1;
    }
    now_.held[held_messages] += (gives ? 1 : 0) - (takes ? 1 : 0);
  }

  void allocate(int chunk) {
    if (allocated_.insert(chunk).second) held(Held::gradients, place(chunk)) += 1;
  }
  void reduce(int chunk) {
    allocate(chunk);
    if (!gradients_persist_) end_reductions();
    note(Running::reduction, place(chunk));
    if (gradients_persist_) return;
    allocated_.erase(chunk);
    under_way_.insert(chunk);
  }
  void end_reductions() {
    for (const int chunk : under_way_) held(Held::gradients, place(chunk)) -= 1;
    under_way_.clear();
  }

  void note(Running running, ChunkPlace of) {
    now_.running = running;
    now_.of = of;
    keep(out_.moments, now_);
  }

  const parallel::Layout& layout_;
  int stage_, zero_;
  bool gradients_persist_;
  Moment now_;
  bool sent_ = false;
  std::set<int> allocated_, under_way_;
  StageMoments out_;
};

void add_stage(StageMoments& to, const StageMoments& more) {
  for (const Moment& moment : more.moments) keep(to.moments, moment);
  for (size_t p = 0; p < chunk_places; ++p) to.unshards[p] = std::max(to.unshards[p], more.unshards[p]);
}

PipelineMoments moments_of(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                           int zero) {
  const auto of = [&](int stage) {
    return Walk(layout, stage, zero).of(programs[static_cast<size_t>(stage)]);
  };
  const int stages = layout.stages();
  PipelineMoments out;
  out.first = of(0);
  if (stages > 1) out.last = of(stages - 1);
  if (stages <= 2) return out;
  out.middle = of(1);
  // The second stage is the fullest of the middle ones, but where weights' gradients are put off.
  const bool differ = layout.run().parallel.schedule == config::ScheduleKind::zero_bubble_h1 ||
                      (zero == 3 && layout.virtual_stages() > 1);
  if (!differ) return out;
  for (int stage = 2; stage + 1 < stages; ++stage) add_stage(out.middle, of(stage));
  return out;
}

// Chunks' activations of micro-batches, at most.
double most_live(const StageMoments& stage) {
  double most = 0;
  for (const Moment& m : stage.moments) {
    double live = 0;
    for (size_t p = 0; p < chunk_places; ++p) live += m.held[held_at(Held::live, static_cast<ChunkPlace>(p))];
    most = std::max(most, live);
  }
  return most;
}

bool hold_alike(const PipelineMoments& a, const PipelineMoments& b) {
  return a.first.moments == b.first.moments && a.middle.moments == b.middle.moments &&
         a.last.moments == b.last.moments;
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
  if (key.schedule == config::ScheduleKind::zero_bubble_h1) return std::min(m, 2 * p + 2);
  if (key.chunks == 1) return std::min(m, p + 2);
  return m <= 4 * p ? m : 3 * p + m % p;
}

}  // namespace

void StageMoments::pack() {
  columns.clear();
  counts.clear();
  for (size_t i = 0; i < held_counts; ++i) {
    const bool any =
        std::any_of(moments.begin(), moments.end(), [i](const Moment& m) { return m.held[i] != 0; });
    if (any) columns.push_back(static_cast<uint8_t>(i));
  }
  const size_t used = columns.size();
  while (columns.size() % wide != 0) columns.push_back(0);
  for (const Moment& m : moments) {
    for (size_t c = 0; c < columns.size(); ++c) counts.push_back(c < used ? m.held[columns[c]] : 0);
  }
}

void PipelineMoments::pack() {
  for (StageMoments* stage : {&first, &middle, &last}) stage->pack();
}

// A model of one layer a chunk in this pipeline.
config::RunFile PipelineShapes::run_of(const Key& key) const {
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
  p.dp = 2;
  p.schedule = key.schedule;
  p.zero = 3;
  p.reshard_after_forward = key.reshards;
  run.software.overlap_gradients = overlaps_gradients_;
  run.train.global_batch = p.dp * key.micro_batches;
  run.train.sequence = 1;
  return run;
}

const PipelineShapes::ByZero& PipelineShapes::walked(const Key& key) {
  const auto [known, is_new] = walked_.try_emplace(key);
  ByZero& out = known->second;
  if (!is_new) return out;
  config::RunFile run = run_of(key);
  {
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    out.of[0] = out.of[1] = moments_of(layout, programs, 1);
    if (scatter_ == config::GradientScatter::chunk) {
      out.of[2] = moments_of(layout, programs, 2);
      out.of[3] = moments_of(layout, programs, 3);
      out.two_holds_as_one = hold_alike(out.of[1], out.of[2]);
      return out;
    }
  }
  run.parallel.gradient_scatter = scatter_;
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  out.of[2] = moments_of(layout, programs, 2);
  out.of[3] = moments_of(layout, programs, 3);
  return out;
}

const PipelineShapes::ByZero& PipelineShapes::of(const Key& key) {
  const auto [known, is_new] = known_.try_emplace(key);
  if (!is_new) return known->second;
  known->second = of_all_micro_batches(key);
  for (PipelineMoments& moments : known->second.of) moments.pack();
  return known->second;
}

PipelineShapes::ByZero PipelineShapes::of_all_micro_batches(const Key& key) {
  Key shorter = key;
  shorter.micro_batches = enough(key);
  const int rest = key.micro_batches - shorter.micro_batches;
  ByZero out = walked(shorter);
  if (rest == 0) return out;
  if (key.schedule == config::ScheduleKind::gpipe && key.stages > 1) {
    for (PipelineMoments& moments : out.of) {
      for (StageMoments* stage : {&moments.first, &moments.middle, &moments.last}) {
        for (Moment& m : stage->moments) {
          for (size_t p = 0; p < chunk_places; ++p) m.held[p] += m.held[p] > 0 ? rest : 0;  // live
        }
      }
    }
  }
  if (key.chunks > 1) add_groups(out, key, shorter, static_cast<double>(rest) / key.stages);
  return out;
}

// Each further group gathers as often as the third one does. A smaller last group can need more forwards
// ahead than a pipeline has (parallel::build_schedule): as many more with each group, all of whose
// activations wait.
void PipelineShapes::add_groups(ByZero& out, const Key& key, const Key& shorter, double groups) {
  Key longer = shorter, two = key, three = key;
  longer.micro_batches += key.stages;
  two.micro_batches = 2 * key.stages;
  three.micro_batches = 3 * key.stages;
  const ByZero& more = walked(longer);
  const bool grows = most_live(more.of[0].first) > most_live(walked(shorter).of[0].first);
  const PipelineMoments& with = grows ? more.of[3] : walked(three).of[3];
  const PipelineMoments& base = grows ? walked(shorter).of[3] : walked(two).of[3];
  add_unshards(out.of[3].first, with.first, base.first, groups);
  add_unshards(out.of[3].middle, with.middle, base.middle, groups);
  add_unshards(out.of[3].last, with.last, base.last, groups);
  if (!grows) return;
  out.two_holds_as_one = out.two_holds_as_one && more.two_holds_as_one;
  for (size_t zero = 0; zero < out.of.size(); ++zero) {
    auto with_group = std::make_shared<PipelineMoments>(more.of[zero]);
    with_group->pack();
    out.of[zero].with_group = std::move(with_group);
    out.of[zero].groups = groups;
  }
}

}  // namespace lockstep::plan
