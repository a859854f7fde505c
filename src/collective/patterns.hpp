// The compressed form of an algorithm: who sends how much to whom in a round, and how many rounds look alike.
// What prices need; step lists of large groups would have millions of steps.
#pragma once

#include <string>
#include <vector>

#include "collective/steps.hpp"

namespace lockstep::collective {

struct PatternFlow {
  int from = 0;
  int to = 0;
  int chunks = 0;  // so many at once
  bool operator==(const PatternFlow&) const = default;
};

struct RoundPattern {
  std::vector<PatternFlow> flows;  // ascending by from, then to; each pair once
  int rounds = 1;                  // that follow one another and look like this
  bool operator==(const RoundPattern&) const = default;
};

struct Patterns {
  int chunks = 1;  // that the buffer is cut into
  std::vector<RoundPattern> rounds;
  bool operator==(const Patterns&) const = default;
};

// Of a step list.
Patterns patterns_of(const StepList& list);

// The same without the list, in time and memory of one round of each kind: equal to
// patterns_of(build(...)), which tests/collective shows. Errors as build(). "direct" has ranks^2 flows.
Patterns round_patterns(Collective collective, std::string_view algorithm, int ranks, int ranks_per_node = 1,
                        int pieces = 1);

// What a tree does in a round in which all its ranks are busy: every edge carries a piece up and one down.
RoundPattern full_tree_round(int ranks, int ranks_per_node);

}  // namespace lockstep::collective
