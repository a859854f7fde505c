// Which layouts a search tries.
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "plan/search_result.hpp"

namespace lockstep::plan {
namespace {

config::RunFile run_with(std::vector<std::string> overrides) {
  overrides.push_back("model.preset=llama3-8b");
  return config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", overrides,
                               unchosen_keys());
}

class Layouts : public LayoutSearch::Visitor {
 public:
  void take(const SearchLayout& layout, const Evaluation&) override { all.push_back(layout); }
  std::set<int64_t> values(int64_t SearchLayout::*axis) const {
    std::set<int64_t> out;
    for (const SearchLayout& l : all) out.insert(l.*axis);
    return out;
  }
  std::vector<SearchLayout> all;
};

Layouts layouts_of(const config::RunFile& run, int64_t gpus, int64_t batch) {
  LayoutSearch search(run, {batch}, keys_held_by_flags(run));
  Layouts layouts;
  search.run_over(gpus, layouts);
  return layouts;
}

using Values = std::set<int64_t>;

// tp divides heads, feed-forward and sequence, and goes with the heads of keys and values (8; 12).
TEST(SearchSpace, TriesEverySizeThatDivides) {
  const Layouts some = layouts_of(run_with({}), 64, 64);
  EXPECT_EQ(some.values(&SearchLayout::tp), (Values{1, 2, 4, 8, 16, 32}));
  EXPECT_EQ(some.values(&SearchLayout::cp), (Values{1, 2, 4, 8, 16}));
  EXPECT_EQ(some.values(&SearchLayout::micro_batch), (Values{1, 2, 4, 8, 16}));
  const Layouts odd = layouts_of(run_with({"model.heads=96", "model.kv_heads=12", "model.hidden=12288",
                                           "model.ffn=36864", "train.sequence=73728"}),
                                 144, 720);
  EXPECT_EQ(odd.values(&SearchLayout::tp), (Values{1, 2, 3, 4, 6, 12, 24, 48}));
  EXPECT_EQ(odd.values(&SearchLayout::cp), (Values{1, 2, 3, 4, 6, 8, 9, 12, 16}));
  const Values sizes = odd.values(&SearchLayout::micro_batch);
  for (const int64_t size : {3, 5, 6, 10, 15}) EXPECT_TRUE(sizes.count(size)) << size;
}

TEST(SearchSpace, NoLayoutComesTwice) {
  Layouts layouts = layouts_of(run_with({}), 8, 8);
  for (size_t i = 0; i < layouts.all.size(); ++i) {
    for (size_t j = i + 1; j < layouts.all.size(); ++j) ASSERT_FALSE(layouts.all[i] == layouts.all[j]) << i;
  }
}

TEST(SearchSpace, KeepsToWhatFlagsGive) {
  const std::vector<std::pair<const char*, int64_t SearchLayout::*>> axes = {
      {"tp", &SearchLayout::tp},
      {"cp", &SearchLayout::cp},
      {"pp", &SearchLayout::pp},
      {"dp", &SearchLayout::dp},
      {"virtual_stages", &SearchLayout::virtual_stages},
      {"micro_batch", &SearchLayout::micro_batch},
      {"zero", &SearchLayout::zero}};
  const Layouts all = layouts_of(run_with({}), 32, 64);
  for (const auto& [key, axis] : axes) {
    const Layouts held = layouts_of(run_with({std::string("parallel.") + key + "=2"}), 32, 64);
    std::vector<SearchLayout> expected;
    for (const SearchLayout& l : all.all) {
      if (l.*axis == 2) expected.push_back(l);
    }
    ASSERT_FALSE(expected.empty()) << key;
    EXPECT_TRUE(held.all == expected) << key << " " << held.all.size() << " " << expected.size();
  }
}

TEST(SearchSpace, KeepsToWordsAndListsThatFlagsGive) {
  for (const SearchLayout& l : layouts_of(run_with({"parallel.schedule=gpipe"}), 32, 64).all) {
    ASSERT_EQ(l.schedule, config::ScheduleKind::gpipe);
    ASSERT_EQ(l.virtual_stages, 1);
  }
  const config::RunFile run = run_with({"parallel.recompute=[\"norm\"]", "parallel.sequence_parallel=false"});
  LayoutSearch search(run, {64}, keys_held_by_flags(run));
  Layouts layouts;
  search.run_over(32, layouts);
  ASSERT_FALSE(layouts.all.empty());
  for (const SearchLayout& l : layouts.all) {
    ASSERT_EQ(search.recompute_choices()[l.recompute], std::vector<std::string>{"norm"});
    ASSERT_FALSE(l.sequence_parallel);
  }
}

// One layer too few for equal chunks: the last one, which has the output matrix, goes without.
TEST(SearchSpace, TheLastChunkIsRelievedFirst) {
  for (const SearchLayout& l : layouts_of(run_with({"model.layers=31"}), 8, 64).all) {
    const int64_t lacking =
        l.pp * l.virtual_stages * ((31 + l.pp * l.virtual_stages - 1) / (l.pp * l.virtual_stages)) - 31;
    ASSERT_EQ(l.first_less + l.last_less, lacking);
    ASSERT_GE(l.last_less, l.first_less);
  }
}

// A flag's word on how state is gathered and scattered leaves only the stages of ZeRO that have it.
TEST(SearchSpace, TriesOnlyTheZerosThatAFlagGoesWith) {
  const Values from_two = {2, 3}, three = {3};
  EXPECT_EQ(
      layouts_of(run_with({"parallel.gradient_scatter=micro_batch"}), 32, 64).values(&SearchLayout::zero),
      from_two);
  EXPECT_EQ(
      layouts_of(run_with({"parallel.reshard_after_forward=false"}), 32, 64).values(&SearchLayout::zero),
      three);
}

// The run file's own list is of a llama; a gpt model gets its own.
TEST(SearchSpace, RecomputesWhatTheModelHas) {
  const auto choices = [](const config::RunFile& run) {
    return LayoutSearch(run, {64}, keys_held_by_flags(run)).recompute_choices();
  };
  using Choices = std::vector<std::vector<std::string>>;
  EXPECT_EQ(choices(run_with({})), (Choices{{}, {"attention"}, {"norm", "swiglu"}, {"full"}}));
  EXPECT_EQ(choices(run_with({"model.architecture=gpt"})),
            (Choices{{}, {"attention"}, {"norm", "gelu"}, {"full"}}));
}

// Values beyond what a search tries by itself.
TEST(SearchSpace, AHeldValueGoesBeyondTheLimits) {
  const Layouts layouts = layouts_of(run_with({"parallel.micro_batch=32", "parallel.cp=32"}), 32, 64);
  EXPECT_EQ(layouts.values(&SearchLayout::micro_batch), Values{32});
  EXPECT_EQ(layouts.values(&SearchLayout::cp), Values{32});
}

std::string refusal_of(const std::vector<std::string>& overrides) {
  try {
    search_layouts(run_with(overrides));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(SearchSpace, WhatCannotBeHeldIsRefusedWithTheRule) {
  const std::vector<std::string> small = {"cluster.gpus=64", "train.global_batch=64"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), small.begin(), small.end());
    return refusal_of(more);
  };
  EXPECT_NE(with({"parallel.tp=7"}).find("does not divide cluster.gpus = 64"), std::string::npos);
  EXPECT_NE(with({"parallel.tp=64"}).find("parallel.tp: must divide model.heads = 32"), std::string::npos);
  EXPECT_NE(with({"parallel.dp=64", "parallel.micro_batch=3"}).find("must be a multiple of parallel.dp"),
            std::string::npos);
  EXPECT_NE(with({"parallel.virtual_stages=2", "parallel.schedule=1f1b"}).find("interleaved"),
            std::string::npos);
  EXPECT_NE(with({"parallel.zero=3", "software.overlap_gradients=false"}).find("overlap_gradients"),
            std::string::npos);
  EXPECT_NE(
      with({"parallel.zero=1", "parallel.gradient_scatter=micro_batch"}).find("needs parallel.zero = 2"),
      std::string::npos);
  EXPECT_NE(with({"parallel.gathered_input=keep"}).find("parallel.gathered_input: set it to"),
            std::string::npos);
  EXPECT_NE(with({"parallel.zero=3", "parallel.tp=8", "parallel.pp=8"}).find("nothing to shard"),
            std::string::npos);
}

TEST(SearchSpace, AllThatIsNotCountedIsNamedAtOnce) {
  const std::string refusal = refusal_of({"parallel.recompute=full", "parallel.recompute_every=2",
                                          "parallel.layer_split=cost", "parallel.replicas=4096"});
  for (const char* key : {"parallel.recompute_every", "parallel.layer_split", "parallel.replicas"}) {
    EXPECT_NE(refusal.find(key), std::string::npos) << key;
  }
}

// Steps of too many passes: those are left out and counted, the others searched.
TEST(SearchSpace, LeavesOutStepsOfTooManyPasses) {
  class Passes : public LayoutSearch::Visitor {
   public:
    void take(const SearchLayout& l, const Evaluation&) override {
      ++taken;
      most = std::max(most, l.pp * l.virtual_stages * l.micro_batches);
    }
    void left_out(int64_t layouts) override { without += layouts; }
    int64_t taken = 0, without = 0, most = 0;
  };
  const config::RunFile run = run_with({});
  const auto passes_of = [&](int64_t batch) {
    LayoutSearch search(run, {batch});
    Passes passes;
    search.run_over(8, passes);
    return passes;
  };
  const Passes few = passes_of(1024), many = passes_of(1 << 19);
  EXPECT_EQ(few.without, 0);
  EXPECT_GT(many.without, 0);
  EXPECT_GT(many.taken, 0);
  EXPECT_LE(many.most, most_searched_passes);
  EXPECT_GT(2 * many.most, most_searched_passes);
  // Both batches are multiples of every dp x micro-batch and of the stages: none is missing, none counted
  // twice.
  EXPECT_EQ(many.taken + many.without, few.taken);
}

}  // namespace
}  // namespace lockstep::plan
