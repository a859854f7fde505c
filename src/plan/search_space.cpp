#include "plan/search_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "config/rules.hpp"

namespace lockstep::plan {

namespace {

using config::ScheduleKind;

constexpr int64_t most_context_parallel = 16, most_chunks = 16, most_less = 2, most_micro_batch = 16;
constexpr int64_t zero_unchosen = -1;

std::vector<int64_t> divisors(int64_t whole, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t n = 1; n <= std::min(whole, most); ++n) {
    if (whole % n == 0) out.push_back(n);
  }
  return out;
}

bool by_flag(const config::RunFile& run, const std::string& key) {
  const auto place = run.origin.where.find(key);
  return place != run.origin.where.end() && place->second.starts_with("--set");
}

// The search evaluates from tables that do not have all that a run file may say. What it cannot count it does
// not drop.
void check_counted(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  std::string uncounted;
  const auto refuse = [&](bool wrong, const char* key, const char* instead) {
    if (wrong) uncounted += fmt::format("\n  {}: set it to {}", key, instead);
  };
  refuse(p.layer_split == config::LayerSplit::cost, "parallel.layer_split", "\"even\"");
  refuse(p.recompute_every > 1, "parallel.recompute_every", "1");
  const bool replicas =
      p.logical_replicas() > p.dp || (by_flag(run, "parallel.replicas") && p.logical_replicas() != p.dp);
  refuse(replicas, "parallel.replicas", "0");
  // Of a run file, not of a flag, it holds for the layouts that can.
  refuse(by_flag(run, "parallel.gathered_input") && p.gathered_input == config::GatheredInput::keep,
         "parallel.gathered_input", "\"gather_again\"");
  if (uncounted.empty()) return;
  throw UsageError("plan --search does not count what these keys say:" + uncounted);
}

const char* activation_of(const config::RunFile& run) {
  return run.model.architecture == config::Architecture::gpt ? "gelu" : "swiglu";
}

// Whether a model has the ops that are to be computed again: config's rule.
bool has_ops(const config::ModelConfig& model, const std::vector<std::string>& recompute) {
  const bool gpt = model.architecture == config::Architecture::gpt;
  return std::none_of(recompute.begin(), recompute.end(), [&](const std::string& op) {
    return op == (gpt ? "swiglu" : "gelu") || (gpt && op == "second_products");
  });
}

}  // namespace

const std::vector<std::string>& searched_keys() {
  static const std::vector<std::string> keys = {
      "parallel.tp",
      "parallel.cp",
      "parallel.pp",
      "parallel.dp",
      "parallel.schedule",
      "parallel.virtual_stages",
      "parallel.first_stage_less_layers",
      "parallel.last_stage_less_layers",
      "parallel.micro_batch",
      "parallel.zero",
      "parallel.sequence_parallel",
      "parallel.recompute",
  };
  return keys;
}

std::set<std::string> keys_held_by_flags(const config::RunFile& run) {
  std::set<std::string> held;
  for (const std::string& key : searched_keys()) {
    if (by_flag(run, key)) held.insert(key);
  }
  return held;
}

std::set<std::string> unchosen_keys() {
  std::set<std::string> keys(searched_keys().begin(), searched_keys().end());
  keys.insert("parallel.replicas");
  return keys;
}

SearchSpace::SearchSpace(const config::RunFile& run, std::vector<int64_t> batches, std::set<std::string> held)
    : base_(run),
      batches_(std::move(batches)),
      held_(std::move(held)),
      own_(run.parallel),
      recompute_{{}, {"attention"}, {"norm", activation_of(run)}, {"full"}} {
  check_counted(run);
  base_.simulate.slow_links.clear();  // as in single plans
  base_.train.batch_ramp.clear();
  base_.origin = {};
  base_.parallel.replicas = 0;
  const bool known = std::find(recompute_.begin(), recompute_.end(), own_.recompute) != recompute_.end();
  if (!known && (is_held("recompute") || has_ops(run.model, own_.recompute))) {
    recompute_.push_back(own_.recompute);
  }
  choose_lists();
  if (by_flag(run, "parallel.gradient_scatter") &&
      own_.gradient_scatter == config::GradientScatter::micro_batch) {
    only_zeros_from(2, "parallel.gradient_scatter = \"micro_batch\" needs parallel.zero = 2 or 3");
  }
  if (by_flag(run, "parallel.reshard_after_forward") && !own_.reshard_after_forward) {
    only_zeros_from(3, "parallel.reshard_after_forward = false needs parallel.zero = 3");
  }
}

void SearchSpace::only_zeros_from(int64_t least, const char* rule) {
  if (std::erase_if(zeros_, [&](int64_t zero) { return zero < least; }) > 0 && zeros_.empty()) {
    throw UsageError(std::string("no layout is valid: ") + rule);
  }
}

void SearchSpace::choose_lists() {
  one_chunk_ = {ScheduleKind::one_f_one_b, ScheduleKind::gpipe, ScheduleKind::zero_bubble_h1};
  several_chunks_ = {ScheduleKind::interleaved};
  if (is_held("schedule")) {
    one_chunk_ = {own_.schedule};
    if (own_.schedule != ScheduleKind::interleaved) several_chunks_.clear();
  }
  zeros_ = {0, 1, 2, 3};
  if (!base_.software.overlap_gradients) zeros_ = {0, 1};  // config's rule
  if (!is_held("zero")) return;
  const bool allowed = std::find(zeros_.begin(), zeros_.end(), own_.zero) != zeros_.end();
  zeros_ = allowed ? std::vector{own_.zero} : std::vector<int64_t>{};
}

config::RunFile SearchSpace::run_of(const SearchLayout& l) const {
  config::RunFile run = base_;
  config::ParallelConfig& p = run.parallel;
  p.tp = l.tp;
  p.cp = l.cp;
  p.pp = l.pp;
  p.dp = l.dp;
  p.virtual_stages = l.virtual_stages;
  p.first_stage_less_layers = l.first_less;
  p.last_stage_less_layers = l.last_less;
  p.micro_batch = l.micro_batch;
  p.schedule = l.schedule;
  p.zero = l.zero;
  p.sequence_parallel = l.sequence_parallel;
  p.recompute = recompute_[l.recompute];
  // What the run file says of gathered parameters, gradients and inputs holds where there are such.
  const bool norm_again = std::find(p.recompute.begin(), p.recompute.end(), "norm") != p.recompute.end();
  if (norm_again || l.tp == 1 || !l.sequence_parallel) {
    p.gathered_input = config::GatheredInput::gather_again;
  }
  if (l.zero < 3) p.reshard_after_forward = true;
  if (l.zero < 2) p.gradient_scatter = config::GradientScatter::chunk;
  run.train.global_batch = batches_[l.batch];
  run.cluster.gpus = p.world_size();
  return run;
}

std::vector<SearchSpace::Mesh> SearchSpace::meshes(int64_t gpus) const {
  const auto values = [&](const char* key, int64_t own, int64_t whole, int64_t most) {
    return is_held(key) ? std::vector{own} : divisors(whole, most);
  };
  // Where held sizes do not divide the GPUs, one mesh says so.
  const auto left = [&](int64_t taken) { return gpus % taken == 0 ? gpus / taken : 1; };
  std::vector<Mesh> out;
  const config::ModelConfig& m = base_.model;
  for (const int64_t tp : values("tp", own_.tp, gpus, m.heads)) {
    for (const int64_t cp : values("cp", own_.cp, left(tp), most_context_parallel)) {
      for (const int64_t pp : values("pp", own_.pp, left(tp * cp), m.layers + 2 * most_less)) {
        out.push_back(mesh(gpus, tp, cp, pp, zero_unchosen));
      }
    }
  }
  return out;
}

SearchSpace::Mesh SearchSpace::mesh(int64_t gpus, int64_t tp, int64_t cp, int64_t pp, int64_t zero) const {
  Mesh out;
  SearchLayout& l = out.layout;
  l.tp = tp;
  l.cp = cp;
  l.pp = pp;
  l.dp = gpus / (tp * cp * pp);
  if (l.dp * tp * cp * pp != gpus) {
    out.problem = fmt::format("tp x cp x pp = {} does not divide cluster.gpus = {}", tp * cp * pp, gpus);
  } else if (is_held("dp") && l.dp != own_.dp) {
    out.problem = fmt::format("tp x cp x pp x dp = {} x {} x {} x {} is not cluster.gpus = {}", tp, cp, pp,
                              own_.dp, gpus);
  } else {
    const int64_t least = zeros_.empty() ? 0 : zeros_.front();
    l.zero = zero != zero_unchosen ? zero : is_held("zero") ? own_.zero : least;
    out.problem = problem_of(l);
  }
  return out;
}

// Of the layout that is most likely to pass: no more chunks than it must have, the largest micro-batch.
std::string SearchSpace::problem_of(SearchLayout l) const {
  if (l.zero > 1 && l.dp * l.cp == 1) {
    return fmt::format("parallel.zero = {} needs dp x cp above 1: one rank has nothing to shard", l.zero);
  }
  l.virtual_stages = is_held("virtual_stages") ? own_.virtual_stages : 1;
  l.schedule = is_held("schedule")    ? own_.schedule
               : l.virtual_stages > 1 ? ScheduleKind::interleaved
                                      : ScheduleKind::one_f_one_b;
  l.sequence_parallel = sequence_parallel(l).front();
  l.recompute = recompute().front();
  const std::vector<int64_t> sizes = micro_batches(l);
  l.micro_batch = !sizes.empty() ? sizes.back() : is_held("micro_batch") ? own_.micro_batch : 1;
  while (l.batch + 1 < batches_.size() && !divides(l, l.batch)) ++l.batch;
  const bool dealt = deal_layers(l);
  if (!dealt) {
    l.first_less = is_held("first_stage_less_layers") ? own_.first_stage_less_layers : 0;
    l.last_less = is_held("last_stage_less_layers") ? own_.last_stage_less_layers : 0;
  }
  std::vector<config::Problem> problems;
  config::check_rules(run_of(l), {}, problems);
  if (problems.empty()) {
    return dealt ? "" : fmt::format("the ends of the pipeline would lack more than {} layers", most_less);
  }
  const config::Problem& first = problems.front();
  return first.rule.starts_with(first.key) ? first.rule : first.key + ": " + first.rule;
}

std::vector<int64_t> SearchSpace::virtual_stages(const SearchLayout& l) const {
  if (is_held("virtual_stages")) return {own_.virtual_stages};
  const int64_t fit = (base_.model.layers + 2 * most_less) / l.pp;
  std::vector<int64_t> out(
      static_cast<size_t>(several_chunks_.empty() ? 1 : std::clamp<int64_t>(fit, 1, most_chunks)));
  std::iota(out.begin(), out.end(), 1);
  // On one stage a chunk is what one gather takes at a time: FSDP's usual is a layer.
  for (int64_t chunks = most_chunks + 1;
       l.pp == 1 && !several_chunks_.empty() && chunks <= base_.model.layers; ++chunks) {
    if (base_.model.layers % chunks == 0) out.push_back(chunks);
  }
  return out;
}

bool SearchSpace::deal_layers(SearchLayout& l) const {
  const bool first_held = is_held("first_stage_less_layers"), last_held = is_held("last_stage_less_layers");
  l.first_less = first_held ? own_.first_stage_less_layers : 0;
  l.last_less = last_held ? own_.last_stage_less_layers : 0;
  const int64_t chunks = l.pp * l.virtual_stages;
  const int64_t lacking = (chunks - (base_.model.layers + l.first_less + l.last_less) % chunks) % chunks;
  if (lacking > most_less || (lacking > 0 && first_held && last_held)) return false;
  // The last chunk has the output matrix: it is relieved first.
  const int64_t of_last = last_held ? 0 : first_held ? lacking : lacking - lacking / 2;
  l.first_less += lacking - of_last;
  l.last_less += of_last;
  const int64_t each = (base_.model.layers + l.first_less + l.last_less) / chunks;
  return each >= std::max(l.first_less, l.last_less);
}

std::vector<int64_t> SearchSpace::micro_batches(const SearchLayout& layout) const {
  std::vector<int64_t> out;
  SearchLayout l = layout;
  const auto add = [&](int64_t size) {
    l.micro_batch = size;
    for (size_t b = 0; b < batches_.size(); ++b) {
      if (divides(l, b)) return out.push_back(size);
    }
  };
  for (int64_t size = 1; size <= most_micro_batch && !is_held("micro_batch"); ++size) add(size);
  if (own_.micro_batch > most_micro_batch || is_held("micro_batch")) add(own_.micro_batch);
  return out;
}

bool SearchSpace::divides(const SearchLayout& l, size_t batch) const {
  return batches_[batch] % (l.dp * l.micro_batch) == 0;
}

bool SearchSpace::small_enough(const SearchLayout& l) const {
  return l.pp * l.virtual_stages * l.micro_batches <= most_searched_passes;
}

std::span<const bool> SearchSpace::sequence_parallel(const SearchLayout& l) const {
  static constexpr std::array on_and_off = {true, false};
  const std::span<const bool> both = on_and_off;
  if (is_held("sequence_parallel")) return both.subspan(own_.sequence_parallel ? 0 : 1, 1);
  return l.tp == 1 ? both.first(1) : both;
}

std::vector<size_t> SearchSpace::recompute() const {
  if (!is_held("recompute")) {
    std::vector<size_t> all(recompute_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }
  const auto own = std::find(recompute_.begin(), recompute_.end(), own_.recompute);
  return {static_cast<size_t>(own - recompute_.begin())};
}

std::span<const ScheduleKind> SearchSpace::schedules(const SearchLayout& l) const {
  if (l.virtual_stages > 1) return several_chunks_;
  const std::span<const ScheduleKind> all = one_chunk_;
  return l.pp == 1 ? all.first(1) : all;  // a pipeline of one stage has one order of passes
}

std::span<const int64_t> SearchSpace::zeros(const SearchLayout& l) const {
  const std::span<const int64_t> all = zeros_;
  if (l.dp * l.cp > 1 || all.empty()) return all;
  return all.front() > 1 ? all.first(0) : all.first(1);  // nothing to shard
}

}  // namespace lockstep::plan
