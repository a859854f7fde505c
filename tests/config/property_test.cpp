// Properties over random run files: written and read again, equal; proposed values work; nothing crashes.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/schema.hpp"
#include "config/toml_source.hpp"
#include "support.hpp"

namespace lockstep::config {
namespace {

int64_t drawn(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

std::string drawn_text() {
  std::string text;
  const std::vector<std::string> pieces = {"a",    "Z",    "7", " ",  "\"", "\\", "\n", "\t",
                                           "\x01", "\x7f", "é", "漢", "#",  "'",  "="};
  for (int64_t i = drawn(1, 12); i > 0; --i) text += pieces[static_cast<size_t>(drawn(0, 14))];
  return text;
}

double drawn_share() { return static_cast<double>(drawn(1, 1 << 30)) / (1 << 30); }
double drawn_positive() { return drawn_share() * std::pow(10.0, static_cast<double>(drawn(-12, 15))); }

// Ascending in what names them, as their rules want it.
void draw_records(RunFile& run) {
  ClusterConfig& c = run.cluster;
  for (Curve* curve : {&c.gemm_curve, &c.attention_curve, &c.memory_curve, &c.weight_gradient_curve,
                       &c.row_curve, &c.exponential_curve}) {
    for (int64_t i = drawn(0, 3); i > 0; --i) {
      const double last = curve->empty() ? 0 : curve->back().at;
      curve->push_back({1.5 * last + drawn_positive(), std::max(drawn_share(), 1e-6)});
    }
  }
  for (auto* times : {&c.all_reduce_times, &c.all_gather_times, &c.reduce_scatter_times}) {
    for (int64_t i = drawn(0, 3); i > 0; --i) {
      const double last = times->size() % 2 == 0 ? 0 : 1.5 * times->back().bytes;
      times->push_back({2 + static_cast<int64_t>(times->size() / 2), last + drawn_positive(), drawn_share()});
    }
  }
  double bytes = 0;
  for (int64_t i = drawn(0, 2); i > 0; --i) {
    c.message_times.push_back({2, bytes = 1.5 * bytes + drawn_positive(), drawn_share()});
  }
  for (auto* slow : {&run.simulate.slow, &run.simulate.slow_links}) {
    for (int64_t i = drawn(0, 3); i > 0; --i) {
      slow->push_back({(slow->empty() ? 0 : slow->back().rank + 1) + drawn(0, 1000), drawn_share()});
    }
  }
}

// Draws values for every key of a table of floats and free integers, by their rules.
void draw_free_keys(RunFile& run) {
  // Keys of [cluster] that more than their own rule binds.
  const std::string bound =
      " gpus max_gpus gpus_per_node gpus_per_rack gpus_per_pod nvlink_efficiency "
      "low_latency_bandwidth ";
  for (const Key& key : schema()) {
    const Field field = key.field(run);
    if (key.table == "cluster" && bound.find(" " + key.name + " ") != bound.npos) continue;
    if (double* const* number = std::get_if<double*>(&field)) {
      **number = key.rule.high <= 1.0 ? drawn_share() * key.rule.high : drawn_positive();
      **number = std::clamp(**number, key.rule.low, key.rule.high);
    } else if (bool* const* truth = std::get_if<bool*>(&field)) {
      **truth = *rc::gen::arbitrary<bool>();
    } else if (key.table == "train" || key.table == "simulate") {
      const double high = std::min(key.rule.high, 9e15);
      if (int64_t* const* whole = std::get_if<int64_t*>(&field)) {
        **whole = drawn(static_cast<int64_t>(key.rule.low), static_cast<int64_t>(high));
      }
    }
  }
}

void draw_pipeline(RunFile& run) {
  ParallelConfig& p = run.parallel;
  p.pp = drawn(1, 6);
  p.schedule = static_cast<ScheduleKind>(drawn(0, 3));
  p.virtual_stages = p.schedule == ScheduleKind::interleaved ? drawn(1, 4) : 1;
  if (p.pp == 1 && p.virtual_stages > 1) run.model.tie_embeddings = false;
  p.layer_split = static_cast<LayerSplit>(drawn(0, 1));
  if (p.layer_split == LayerSplit::cost) {
    run.model.layers = drawn(1, 100);
    return;
  }
  const int64_t chunks = p.pp * p.virtual_stages;
  const int64_t each = drawn(2, 4);
  p.first_stage_less_layers = drawn(0, each - 1);
  p.last_stage_less_layers = chunks > 1 ? drawn(0, each) : 0;
  run.model.layers = chunks * each - p.first_stage_less_layers - p.last_stage_less_layers;
}

void draw_memory(ParallelConfig& p) {
  p.zero = drawn(0, 3);
  p.gradient_scatter = p.zero >= 2 ? static_cast<GradientScatter>(drawn(0, 1)) : GradientScatter::chunk;
  using Words = std::vector<std::string>;
  p.recompute = *rc::gen::element(Words{}, Words{"full"}, Words{"norm"}, Words{"swiglu", "norm"},
                                  Words{"attention", "norm", "swiglu"}, Words{"attention"});
  if (!p.recompute.empty()) p.recompute_every = drawn(1, 5);
  p.reshard_after_forward = p.zero < 3 || drawn(0, 1) == 1;
  if (p.tp > 1 && p.sequence_parallel && std::count(p.recompute.begin(), p.recompute.end(), "norm") == 0)
    p.gathered_input = static_cast<GatheredInput>(drawn(0, 1));
}

void draw_layout(RunFile& run) {
  ParallelConfig& p = run.parallel;
  p.tp = drawn(1, 5);
  p.cp = drawn(1, 4);
  p.dp = drawn(1, 7);
  p.replicas = p.dp + drawn(0, 9);
  p.micro_batch = drawn(1, 4);
  draw_pipeline(run);
  draw_memory(p);
  run.software.overlap_gradients |= p.zero > 1 || p.replicas > p.dp;
  run.train.sequence = (p.cp > 1 ? 2 * p.cp * p.tp : p.tp) * drawn(1, 1000);
  const int64_t unit = p.replicas * p.micro_batch;
  run.train.global_batch = unit * drawn(3, 50);
  if (drawn(0, 1) == 1) {
    run.train.batch_ramp = {std::to_string(unit) + ":" + std::to_string(drawn(1, 100)),
                            std::to_string(unit * 2) + ":" + std::to_string(drawn(101, 200))};
  }
  const int64_t most = 9007199254740992 / (run.train.global_batch * run.train.sequence);
  run.train.steps = drawn(1, std::min<int64_t>(most, 1'000'000'000'000));
}

void draw_training(TrainConfig& train) {
  train.dtype = static_cast<Dtype>(drawn(0, 2));
  train.optimizer = static_cast<Optimizer>(drawn(0, 1));
  train.nonfinite = static_cast<NonFinite>(drawn(0, 1));
  train.schedule = static_cast<LearningRateSchedule>(drawn(0, 3));
  train.decay_steps = train.schedule == LearningRateSchedule::wsd ? drawn(0, train.steps) : 0;
  using Words = std::vector<std::string>;
  train.no_decay = *rc::gen::element(Words{}, Words{"norm"}, Words{"output", "norm", "embedding"});
}

RunFile drawn_run() {
  RunFile run;
  draw_free_keys(run);
  draw_layout(run);
  run.name = "r" + std::to_string(drawn(0, 1000)) + "-x_y.z";
  ModelConfig& m = run.model;
  m.preset = *rc::gen::element<std::string>("", "llama3-8b", "llama3-405b");
  // Key and value heads that divide tp are copied to several ranks each.
  m.kv_heads = drawn(0, 3) == 0 ? 1 : run.parallel.tp * drawn(1, 4);
  m.heads = std::max(m.kv_heads, run.parallel.tp) * drawn(1, 4);
  m.hidden = m.heads * 2 * drawn(1, 64);
  m.ffn = run.parallel.tp * drawn(1, 5000);
  m.vocab = drawn(256, 20000);
  ClusterConfig& c = run.cluster;
  c.preset = *rc::gen::element<std::string>("", "local", "h100-24k");
  c.gpus = run.parallel.world_size();
  c.max_gpus = drawn(0, 1) == 0 ? 0 : c.gpus + drawn(0, 100);
  c.gpus_per_node = drawn(1, 8);
  c.gpus_per_rack = c.gpus_per_node * drawn(1, 8);
  c.gpus_per_pod = c.gpus_per_rack * drawn(1, 8);
  c.gpu = "x é 漢 \" \\ # ' =" + std::to_string(drawn(0, 9));  // it is printed: no control characters
  c.topology = static_cast<Topology>(drawn(0, 1));
  c.collective_algorithm = static_cast<CollectiveAlgorithm>(drawn(0, 5));
  draw_records(run);
  draw_training(run.train);
  if (drawn(0, 1) == 1) run.data.text = "/" + drawn_text() + "x";
  for (int64_t i = drawn(0, 3); i > 0; --i) run.data.held_out.push_back(std::to_string(i) + drawn_text());
  return run;
}

TEST(Property, AResolvedFileReadsBackEqual) {
  const bool passed = rc::check("to_toml then load is the identity", [] {
    const RunFile run = drawn_run();
    const Examined again = examine_run_text(to_toml(run), "resolved.toml", {});
    RC_ASSERT(to_string(again.problems) == "");
    RC_ASSERT(again.run == run);
    RC_ASSERT(to_toml(again.run) == to_toml(run));
  });
  EXPECT_TRUE(passed);
}

TEST(Property, EqualitySeesEveryKey) {
  const RunFile run = load_run_file(configs + "tiny.toml", {});
  for (const Key& key : schema()) {
    RunFile other = run;
    const Field field = key.field(other);
    if (auto* const* whole = std::get_if<int64_t*>(&field)) **whole += 1;
    if (auto* const* number = std::get_if<double*>(&field)) **number += 1;
    if (auto* const* truth = std::get_if<bool*>(&field)) **truth = !**truth;
    if (auto* const* text = std::get_if<std::string*>(&field)) **text += "x";
    if (auto* const* list = std::get_if<std::vector<std::string>*>(&field)) (*list)->push_back("norm");
    const auto set = [&](auto... values) {
      const auto one = [&](auto value) {
        if (auto* const* choice = std::get_if<decltype(value)*>(&field)) **choice = value;
      };
      (one(values), ...);
    };
    set(ScheduleKind::gpipe, Dtype::fp64, Architecture::gpt, AttentionKernel::scores, CrossEntropy::unfused,
        GradientDtype::compute, LayerSplit::cost, GradientScatter::micro_batch, GatheredInput::keep,
        Optimizer::sgd, LearningRateSchedule::wsd, NonFinite::skip, Topology::rails,
        CollectiveAlgorithm::tree);
    if (auto* const* curve = std::get_if<Curve*>(&field)) (*curve)->push_back({1e9, 0.5});
    if (auto* const* times = std::get_if<std::vector<TimedTransfer>*>(&field))
      (*times)->push_back({2, 64, 1});
    if (auto* const* slow = std::get_if<std::vector<SlowRank>*>(&field)) (*slow)->push_back({7, 1.3});
    const bool one_value_only = !key.is_built();
    EXPECT_EQ(other == run, one_value_only) << key.path();
    EXPECT_EQ(to_toml(other) == to_toml(run), one_value_only) << key.path();
  }
}

// A rule without its figures.
std::string kind_of(const Problem& problem) {
  return problem.key + ": " + problem.rule.substr(0, problem.rule.find_first_of("0123456789"));
}

std::string drawn_literal() {
  switch (drawn(0, 9)) {
    case 0:
      return to_literal(*rc::gen::arbitrary<int64_t>());
    case 1:
      return to_literal(drawn_positive() * (drawn(0, 1) == 0 ? -1 : 1));
    case 2:
      return *rc::gen::element<std::string>(
          "true", "nan", "inf", "-inf", "1979-05-27", "[1, 2]", "{a = 1}", "[]", "\"\"", "\"12\"", "yes",
          "1f1b", "interleaved", "[\"norm\", \"x\"]", "[\"full\"]", "\"norm\"", "llama3-70b", "h100-24k",
          "\"2.5\"", "[{ rank = 7, factor = 1.3 }]",
          "[{ flops = 3, efficiency = 0.5 }, { flops = 2, efficiency = 9 }]",
          "[{ bytes = 8, seconds = 1 }, { bytes = 8, seconds = 2 }]");
    case 3:
      return to_literal(drawn_text());
    default:
      break;
  }
  return to_literal(drawn(0, 40));
}

void check_that_fixes_work(const std::vector<std::string>& overrides, int& fixes) {
  const Examined broken = examine_tiny(overrides);
  for (const Problem& problem : broken.problems) {
    if (problem.fix.empty()) continue;
    ++fixes;
    std::vector<std::string> with_fix = overrides;
    with_fix.push_back(problem.fix_key + "=" + problem.fix);
    RC_ASSERT(check_value(*find_key(problem.fix_key), parse_override(with_fix.back()).value).rule == "");
    for (const Problem& left : examine_tiny(with_fix).problems) {
      if (kind_of(left) == kind_of(problem)) {
        RC_FAIL("with the proposed value:\n" + to_string(problem) + "\nstill:\n" + to_string(left));
      }
    }
  }
}

TEST(Property, TheNearestValueThatWorksWorks) {
  int fixes = 0;
  const bool passed = rc::check("a proposed value removes its problem", [&] {
    std::vector<std::string> overrides;
    for (int64_t i = drawn(1, 5); i > 0; --i) {
      const Key& key = schema()[static_cast<size_t>(drawn(0, static_cast<int64_t>(schema().size()) - 1))];
      overrides.push_back(key.path() + "=" + drawn_literal());
    }
    check_that_fixes_work(overrides, fixes);
  });
  EXPECT_TRUE(passed);
  EXPECT_GT(fixes, 50);
}

// The rules between keys, which random keys hit too rarely.
TEST(Property, TheNearestLayoutThatWorksWorks) {
  int fixes = 0;
  const bool passed = rc::check("a proposed layout value removes its problem", [&] {
    std::vector<std::string> overrides;
    for (const char* path : {"model.layers",
                             "model.hidden",
                             "model.heads",
                             "model.kv_heads",
                             "model.ffn",
                             "cluster.gpus",
                             "parallel.tp",
                             "parallel.cp",
                             "parallel.pp",
                             "parallel.dp",
                             "parallel.replicas",
                             "parallel.zero",
                             "parallel.recompute_every",
                             "parallel.virtual_stages",
                             "train.decay_steps",
                             "train.steps",
                             "parallel.first_stage_less_layers",
                             "parallel.last_stage_less_layers",
                             "parallel.micro_batch",
                             "train.sequence",
                             "train.global_batch",
                             "cluster.max_gpus",
                             "cluster.gpus_per_node",
                             "cluster.gpus_per_rack",
                             "cluster.gpus_per_pod"}) {
      if (drawn(0, 2) == 0) overrides.push_back(std::string(path) + "=" + std::to_string(drawn(1, 48)));
    }
    if (drawn(0, 1) == 0) overrides.push_back("model.vocab=" + std::to_string(drawn(1, 1000)));
    if (drawn(0, 1) == 0) overrides.push_back("parallel.schedule=interleaved");
    for (const char* choice :
         {"parallel.layer_split=cost", "parallel.gradient_scatter=micro_batch",
          "parallel.gathered_input=keep", "parallel.recompute=[\"norm\"]", "parallel.sequence_parallel=false",
          "model.tie_embeddings=true", "train.schedule=wsd", "train.batch_ramp=[\"2:10\", \"4:20\"]"}) {
      if (drawn(0, 3) == 0) overrides.push_back(choice);
    }
    check_that_fixes_work(overrides, fixes);
  });
  EXPECT_TRUE(passed);
  EXPECT_GT(fixes, 200);
}

TEST(Property, TheNearestSizeThatWorksWorks) {
  int fixes = 0;
  const bool passed = rc::check("a proposed size removes its problem", [&] {
    std::vector<std::string> overrides;
    for (const char* path :
         {"model.layers", "model.hidden", "model.ffn", "model.vocab", "parallel.pp", "parallel.cp",
          "parallel.dp", "parallel.replicas", "parallel.micro_batch", "train.sequence", "train.global_batch",
          "train.steps", "parallel.virtual_stages"}) {
      const auto high = static_cast<int64_t>(find_key(path)->rule.high);
      if (drawn(0, 2) == 0) overrides.push_back(std::string(path) + "=" + std::to_string(drawn(1, high)));
    }
    check_that_fixes_work(overrides, fixes);
  });
  EXPECT_TRUE(passed);
  EXPECT_GT(fixes, 100);
}

// One to eight bytes changed.
std::string mutated(std::string text) {
  for (int64_t i = drawn(1, 8); i > 0 && !text.empty(); --i) {
    const auto at = [&] { return static_cast<size_t>(drawn(0, static_cast<int64_t>(text.size()) - 1)); };
    const size_t place = at();
    const std::string marks = "[]{}=.,\"'#\n\\-0159eE_+tTzZ: \t\r";
    switch (drawn(0, 5)) {
      case 0:
        text[place] = static_cast<char>(drawn(0, 255));
        break;
      case 1:
        text.erase(place, static_cast<size_t>(drawn(1, 20)));
        break;
      case 2:
        text.insert(place, text.substr(at(), static_cast<size_t>(drawn(1, 60))));
        break;
      case 3:
        text.resize(place);
        break;
      default:
        text.insert(place, 1, marks[static_cast<size_t>(drawn(0, static_cast<int64_t>(marks.size()) - 1))]);
    }
  }
  return text;
}

TEST(Fuzz, ChangedBytesAreAnsweredNotCrashedOn) {
  int good = 0, refused = 0, not_toml = 0;
  const std::vector<std::string> samples = {read_all(configs + "tiny.toml"),
                                            read_all(configs + "llama3-405b-16k.toml")};
  const bool passed = rc::check("any bytes are a run file, problems or a UsageError", [&] {
    for (int round = 0; round < 20; ++round) {
      const std::string text = mutated(samples[static_cast<size_t>(round % 2)]);
      try {
        const Examined examined = examine_run_text(text, "fuzz.toml", {});
        ++(examined.problems.empty() ? good : refused);
        for (const Problem& problem : examined.problems) RC_ASSERT(!to_string(problem).empty());
        if (examined.problems.empty()) {
          RC_ASSERT(examine_run_text(to_toml(examined.run), "again.toml", {}).run == examined.run);
        }
      } catch (const UsageError&) {
        ++not_toml;
      }
    }
  });
  EXPECT_TRUE(passed);
  EXPECT_GT(good, 10);
  EXPECT_GT(refused, 10);
  EXPECT_GT(not_toml, 10);
}

TEST(Fuzz, AnyOverrideIsAnswered) {
  const bool passed = rc::check("any flag is an entry or a UsageError", [] {
    const auto flag = *rc::gen::arbitrary<std::string>();
    const std::string path =
        *rc::gen::element<std::string>("", "train.steps=", "name=", "data.text=", "parallel.");
    try {
      examine_tiny({path + flag});
    } catch (const UsageError&) {
    }
  });
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace lockstep::config
