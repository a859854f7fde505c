// Proves the algorithms by running them on symbols: a chunk on a rank holds a multiset of the ranks it sums.
// The closed forms are those of the papers that src/collective/steps.hpp names.
#include "collective/steps.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"

namespace lockstep::collective {
namespace {

using Contributions = std::multiset<int>;       // ranks whose data a value sums
using Value = std::optional<Contributions>;     // nothing: the rank does not hold the chunk
using State = std::vector<std::vector<Value>>;  // [rank][chunk]

// Whether `chunk` is one of `rank`'s own: its equal share of the list.
bool owns(const StepList& list, int rank, int chunk) { return chunk / (list.chunks / list.ranks) == rank; }

State start_of(const StepList& list) {
  State state(static_cast<size_t>(list.ranks), std::vector<Value>(static_cast<size_t>(list.chunks)));
  for (int r = 0; r < list.ranks; ++r)
    for (int c = 0; c < list.chunks; ++c) {
      const bool has = list.collective == Collective::all_gather  ? owns(list, r, c)
                       : list.collective == Collective::broadcast ? r == 0
                                                                  : true;
      if (has) state[static_cast<size_t>(r)][static_cast<size_t>(c)] = Contributions{r};
    }
  return state;
}

// All steps of a round read the state before it; a place that is written in a round is not read in it, and
// only sums may come to one place more than once.
void run_round(State& state, const std::vector<Step>& steps) {
  const State before = state;
  std::set<std::pair<int, int>> read, written, copied;
  for (const Step& s : steps) {
    ASSERT_NE(s.from, s.to);
    read.insert({s.from, s.chunk});
    const bool again = s.action == Action::copy && !copied.insert({s.to, s.chunk}).second;
    EXPECT_FALSE(again) << "two copies to one place";
    written.insert({s.to, s.chunk});
    const Value& source = before[static_cast<size_t>(s.from)][static_cast<size_t>(s.chunk)];
    Value& target = state[static_cast<size_t>(s.to)][static_cast<size_t>(s.chunk)];
    ASSERT_TRUE(source.has_value()) << "rank " << s.from << " sends chunk " << s.chunk
                                    << " that it does not hold";
    if (s.action == Action::copy) {
      target = source;
    } else {
      ASSERT_TRUE(target.has_value());
      target->insert(source->begin(), source->end());
    }
  }
  for (const auto& place : written) EXPECT_FALSE(read.contains(place)) << "read and written in one round";
}

State run(const StepList& list) {
  State state = start_of(list);
  std::map<int, std::vector<Step>> by_round;
  int last = 0;
  for (const Step& s : list.steps) {
    EXPECT_GE(s.round, last) << "rounds must ascend";
    EXPECT_TRUE(s.from >= 0 && s.from < list.ranks && s.to >= 0 && s.to < list.ranks);
    EXPECT_TRUE(s.chunk >= 0 && s.chunk < list.chunks);
    last = s.round;
    by_round[s.round].push_back(s);
  }
  EXPECT_EQ(static_cast<int>(by_round.size()), rounds(list)) << "no empty rounds";
  for (const auto& [round, steps] : by_round) run_round(state, steps);
  return state;
}

void expect_proved(const StepList& list) {
  SCOPED_TRACE(std::string(name_of(list.collective)) + " " + list.algorithm + " of " +
               std::to_string(list.ranks));
  const State end = run(list);
  Contributions all;
  for (int r = 0; r < list.ranks; ++r) all.insert(r);
  for (int r = 0; r < list.ranks; ++r)
    for (int c = 0; c < list.chunks; ++c) {
      const Value& value = end[static_cast<size_t>(r)][static_cast<size_t>(c)];
      switch (list.collective) {
        case Collective::all_reduce:
          EXPECT_EQ(value, all);
          break;
        case Collective::all_gather:
          EXPECT_EQ(value, Contributions{c / (list.chunks / list.ranks)});
          break;
        case Collective::broadcast:
          EXPECT_EQ(value, Contributions{0});
          break;
        case Collective::reduce_scatter:
          if (owns(list, r, c)) {
            EXPECT_EQ(value, all);
          }
      }
    }
}

constexpr Collective all_collectives[] = {Collective::all_reduce, Collective::all_gather,
                                          Collective::reduce_scatter, Collective::broadcast};

TEST(Steps, EveryAlgorithmIsProvedBySymbolicExecution) {
  int proved = 0;
  for (int ranks = 1; ranks <= 33; ++ranks)
    for (const Collective collective : all_collectives)
      for (const std::string& algorithm : algorithms_for(collective, ranks)) {
        expect_proved(build(collective, algorithm, ranks));
        ++proved;
      }
  EXPECT_EQ(proved, 33 * 8 + 6);  // ring 3, direct 4, tree 1; halving_doubling at 1 2 4 8 16 32
  expect_proved(halving_doubling(Collective::all_reduce, 128));
}

TEST(Steps, EveryAlgorithmIsProvedOnNodesOfSeveralRanks) {
  int proved = 0;
  for (const auto& [per_node, most_nodes] :
       {std::pair(2, 5), std::pair(3, 4), std::pair(4, 3), std::pair(8, 2)})
    for (int nodes = 1; nodes <= most_nodes; ++nodes)
      for (const Collective collective : all_collectives)
        for (const std::string& algorithm : algorithms_for(collective, nodes * per_node, per_node)) {
          expect_proved(build(collective, algorithm, nodes * per_node, per_node));
          ++proved;
        }
  EXPECT_EQ(proved, 14 * 11 + 7);  // hierarchical 3 more; halving_doubling at 2 4 8, 4 8 and 8 16
  for (const int pieces : {2, 3, 9})
    for (const int nodes : {2, 3, 6}) {
      expect_proved(tree(Collective::all_reduce, nodes, 1, pieces));
      expect_proved(tree(Collective::all_reduce, nodes * 4, 4, pieces));
    }
}

bool all_reduced(const StepList& list) {
  const Contributions all = {0, 1, 2, 3};
  for (const auto& rank : run(list))
    for (const Value& value : rank)
      if (value != all) return false;
  return true;
}

TEST(Steps, TheProofFindsAMissingAndAChangedStep) {
  const StepList whole = ring(Collective::all_reduce, 4);
  EXPECT_TRUE(all_reduced(whole));
  for (size_t s = 0; s < whole.steps.size(); ++s) {
    StepList list = whole;
    list.steps.erase(list.steps.begin() + static_cast<std::ptrdiff_t>(s));
    EXPECT_FALSE(all_reduced(list)) << "without step " << s;
    list = whole;
    Step& step = list.steps[s];
    step.action = step.action == Action::reduce ? Action::copy : Action::reduce;
    EXPECT_FALSE(all_reduced(list)) << "other action in step " << s;
  }
}

TEST(Steps, RingHasItsClosedForms) {
  for (const int n : {1, 2, 3, 8, 13, 64}) {
    const StepList reduce = ring(Collective::all_reduce, n), scatter = ring(Collective::reduce_scatter, n);
    EXPECT_EQ(rounds(reduce), 2 * (n - 1));
    EXPECT_EQ(rounds(scatter), n - 1);
    EXPECT_EQ(rounds(ring(Collective::all_gather, n)), n - 1);
    for (int r = 0; r < n; ++r) {
      EXPECT_DOUBLE_EQ(sent_fraction(reduce, r), 2.0 * (n - 1) / n);
      EXPECT_DOUBLE_EQ(received_fraction(reduce, r), 2.0 * (n - 1) / n);
      EXPECT_DOUBLE_EQ(sent_fraction(scatter, r), 1.0 * (n - 1) / n);
    }
    for (const Step& s : reduce.steps) EXPECT_EQ(s.to, (s.from + 1) % n);
  }
}

TEST(Steps, HalvingDoublingHasItsClosedForms) {
  for (const int n : {2, 4, 8, 64, 128}) {
    const StepList list = halving_doubling(Collective::all_reduce, n);
    EXPECT_EQ(rounds(list), 2 * static_cast<int>(std::lround(std::log2(n))));
    for (int r = 0; r < n; ++r) EXPECT_DOUBLE_EQ(sent_fraction(list, r), 2.0 * (n - 1) / n);
    std::map<std::pair<int, int>, std::set<int>> partners;  // one partner a round
    for (const Step& s : list.steps) partners[{s.round, s.from}].insert(s.to);
    for (const auto& [who, whom] : partners) EXPECT_EQ(whom.size(), 1u);
  }
}

TEST(Steps, DirectHasOneRoundAPhase) {
  EXPECT_EQ(rounds(direct(Collective::all_reduce, 5)), 2);
  EXPECT_EQ(rounds(direct(Collective::all_gather, 5)), 1);
  EXPECT_EQ(rounds(direct(Collective::reduce_scatter, 5)), 1);
  EXPECT_EQ(rounds(direct(Collective::broadcast, 5)), 1);
  EXPECT_DOUBLE_EQ(sent_fraction(direct(Collective::broadcast, 5), 0), 4.0);
  EXPECT_DOUBLE_EQ(sent_fraction(direct(Collective::broadcast, 5), 1), 0.0);
  EXPECT_DOUBLE_EQ(sent_fraction(direct(Collective::all_reduce, 5), 3), 2 * 4.0 / 5);
}

TEST(Steps, WhatDoesNotExistIsRefused) {
  EXPECT_THROW(halving_doubling(Collective::all_reduce, 6), UsageError);
  EXPECT_THROW(halving_doubling(Collective::all_gather, 8), UsageError);
  EXPECT_THROW(ring(Collective::broadcast, 4), UsageError);
  EXPECT_THROW(ring(Collective::all_reduce, 0), UsageError);
  EXPECT_THROW(build(Collective::all_reduce, "rign", 4), UsageError);
  EXPECT_THROW(collective_of("allreduce"), UsageError);
  for (const Collective c : all_collectives) EXPECT_EQ(collective_of(name_of(c)), c);
  try {
    halving_doubling(Collective::all_reduce, 6);
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("nearest: 4 and 8"), std::string::npos) << e.what();
  }
}

TEST(Steps, ChunksCoverTheBufferInOrder) {
  for (const size_t count : {0, 1, 5, 7, 8, 100})
    for (const int chunks : {1, 3, 8}) {
      size_t next = 0;
      for (int c = 0; c < chunks; ++c) {
        const Range range = chunk_range(count, chunks, c);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(range.size() - count / static_cast<size_t>(chunks), 1u);
        next = range.end;
      }
      EXPECT_EQ(next, count);
    }
}

}  // namespace
}  // namespace lockstep::collective
