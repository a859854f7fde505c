// The compressed form against the step lists, and what the shapes promise of the traffic they make.
#include "collective/patterns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "collective/shapes.hpp"

namespace lockstep::collective {
namespace {

constexpr Collective all_collectives[] = {Collective::all_reduce, Collective::all_gather,
                                          Collective::reduce_scatter, Collective::broadcast};

void expect_equal(Collective collective, const std::string& algorithm, int ranks, int per_node, int pieces) {
  const Patterns from_list = patterns_of(build(collective, algorithm, ranks, per_node, pieces));
  EXPECT_EQ(round_patterns(collective, algorithm, ranks, per_node, pieces), from_list)
      << name_of(collective) << " " << algorithm << " of " << ranks << ", " << per_node << " in a node, "
      << pieces << " pieces";
}

TEST(Patterns, EqualTheStepListOfEveryAlgorithm) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 24, 31, 32, 48, 63, 64}) {
    for (const int per_node : {1, 2, 3, 4, 8}) {
      if (ranks % per_node != 0) continue;
      for (const Collective collective : all_collectives) {
        for (const std::string& algorithm : algorithms_for(collective, ranks, per_node)) {
          expect_equal(collective, algorithm, ranks, per_node, 1);
          if (algorithm == "tree") expect_equal(collective, algorithm, ranks, per_node, 5);
          if (algorithm == "tree") expect_equal(collective, algorithm, ranks, per_node, 40);
        }
      }
    }
  }
}

TEST(Patterns, ATreesFullRoundIsWhatItDoesMostOfTheTime) {
  for (const int per_node : {1, 4}) {
    const Patterns patterns = round_patterns(Collective::all_reduce, "tree", 32, per_node, 100);
    const auto longest =
        std::max_element(patterns.rounds.begin(), patterns.rounds.end(),
                         [](const RoundPattern& a, const RoundPattern& b) { return a.rounds < b.rounds; });
    EXPECT_GT(longest->rounds, 75);
    EXPECT_EQ(longest->flows, full_tree_round(32, per_node).flows);
  }
}

TEST(Patterns, LargeGroupsHaveFewOfThem) {
  EXPECT_EQ(round_patterns(Collective::all_reduce, "ring", 16384).rounds.size(), 1u);
  EXPECT_EQ(round_patterns(Collective::all_reduce, "ring", 16384).rounds.front().rounds, 2 * 16383);
  EXPECT_EQ(round_patterns(Collective::all_reduce, "hierarchical", 16384, 8).rounds.size(), 3u);
  EXPECT_LE(round_patterns(Collective::all_reduce, "halving_doubling", 16384).rounds.size(), 28u);
  EXPECT_LE(round_patterns(Collective::all_reduce, "tree", 1024, 1, 64).rounds.size(), 60u);
}

TEST(Patterns, RefuseWhatTheStepListsRefuse) {
  EXPECT_THROW(round_patterns(Collective::all_gather, "tree", 8), UsageError);
  EXPECT_THROW(round_patterns(Collective::all_reduce, "halving_doubling", 6), UsageError);
  EXPECT_THROW(round_patterns(Collective::all_reduce, "ring", 9, 4), UsageError);
  EXPECT_THROW(round_patterns(Collective::broadcast, "hierarchical", 8, 4), UsageError);
  EXPECT_THROW(build(Collective::all_reduce, "tree", 8, 1, 0), UsageError);
}

// Chunks that each rank sends to other nodes in a round.
std::map<int, int> sent_outside(const RoundPattern& pattern, int per_node) {
  std::map<int, int> sent;
  for (const PatternFlow& f : pattern.flows) {
    if (f.from / per_node != f.to / per_node) sent[f.from] += f.chunks;
  }
  return sent;
}

TEST(Rings, UseAllNicsOfANodeAlike) {
  for (const int nodes : {2, 4, 6}) {
    const RoundPattern round = round_patterns(Collective::all_gather, "ring", nodes * 8, 8).rounds.front();
    const std::map<int, int> sent = sent_outside(round, 8);
    EXPECT_EQ(sent.size(), static_cast<size_t>(nodes) * 8);
    for (const auto& [rank, chunks] : sent) EXPECT_EQ(chunks, 1) << rank;
    for (const PatternFlow& f : round.flows) {
      if (f.from / 8 != f.to / 8) {
        EXPECT_EQ(f.from % 8, f.to % 8) << "a hop leaves its rail";
      }
    }
  }
  EXPECT_EQ(sent_outside(round_patterns(Collective::all_gather, "ring", 40, 8).rounds.front(), 8).size(),
            40u);
}

TEST(Trees, HardlyARankIsInnerNodeTwice) {
  for (int ranks = 2; ranks <= 200; ++ranks) {
    std::vector<int> inner(static_cast<size_t>(ranks), 0);
    for (const Tree& tree : trees(ranks, 1)) {
      std::vector<bool> has_child(static_cast<size_t>(ranks), false);
      std::vector<int> children(static_cast<size_t>(ranks), 0);
      for (const int parent : tree.parent) {
        if (parent >= 0) ++children[static_cast<size_t>(parent)];
      }
      for (size_t r = 0; r < children.size(); ++r) {
        EXPECT_LE(children[r], 2);
        inner[r] += children[r] > 0 ? 1 : 0;
      }
      EXPECT_LE(tree.root_height, static_cast<int>(std::ceil(std::log2(ranks))) + 1);
    }
    const auto twice = std::count(inner.begin(), inner.end(), 2);
    EXPECT_LE(twice, 1) << ranks;
  }
}

// Full bandwidth: each rank sends and receives about twice the buffer, as in a ring.
TEST(Trees, HaveTheRingsBytes) {
  for (const int ranks : {8, 64, 128}) {
    const StepList list = tree(Collective::all_reduce, ranks);
    double most = 0;
    for (int r = 0; r < ranks; ++r)
      most = std::max({most, sent_fraction(list, r), received_fraction(list, r)});
    EXPECT_LE(most, 2.0);
    EXPECT_EQ(rounds(list), 2 * static_cast<int>(std::lround(std::log2(ranks))));
  }
}

TEST(Hierarchical, SendsTheLeastOverNics) {
  const StepList list = hierarchical(Collective::all_reduce, 64, 8);
  std::map<int, int> outside;
  for (const Step& s : list.steps) {
    if (s.from / 8 != s.to / 8) ++outside[s.from];
  }
  EXPECT_EQ(outside.size(), 64u);
  for (const auto& [rank, chunks] : outside)
    EXPECT_EQ(chunks, 2 * 7) << rank;  // of 64: 2 (8-1)/8 of an eighth
  EXPECT_EQ(rounds(list), 2 * (7 + 7));
}

}  // namespace
}  // namespace lockstep::collective
