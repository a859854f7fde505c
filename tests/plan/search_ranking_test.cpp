// What is kept of a search's layouts.
#include "plan/search_ranking.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::plan {
namespace {

std::vector<double> seconds_of(const std::vector<Ranked>& ranked) {
  std::vector<double> out;
  for (const Ranked& one : ranked) out.push_back(one.evaluation.seconds);
  return out;
}

// As many layouts as it keeps, each once, equivalent ones with their number.
TEST(Ranking, CountsEquivalentLayoutsOnce) {
  Ranking ranking(100, 3);
  SearchLayout layout;
  for (const double seconds : {4.0, 3.0, 3.00001, 2.0, 3.0, 5.0}) ranking.take(layout, {seconds, 10});
  layout.tp = 2;
  ranking.take(layout, {3, 10});
  ranking.take(layout, {2, 200});
  const std::vector<Ranked> fastest = ranking.fastest();
  ASSERT_EQ(fastest.size(), 3u);
  EXPECT_EQ(fastest[0].evaluation.seconds, 2);
  EXPECT_EQ(fastest[0].equivalents, 0);
  EXPECT_EQ(fastest[1].equivalents, 2);
  EXPECT_EQ(fastest[1].layout.tp, 1);
  EXPECT_EQ(fastest[2].layout.tp, 2);
  EXPECT_EQ(ranking.evaluated(), 8);
  EXPECT_EQ(ranking.valid(), 7);
}

// A percent of the capacity of 100 above and below is for the full plan to say.
TEST(Ranking, KeepsWhatMayFitBesideWhatDoes) {
  Ranking ranking(100, 2);
  for (const auto& [seconds, bytes] :
       {std::pair{1.0, 101.1}, {2.0, 100.9}, {3.0, 99.5}, {4.0, 98.9}, {5.0, 50.0}}) {
    ranking.take({}, {seconds, bytes});
  }
  EXPECT_EQ(seconds_of(ranking.fastest()), (std::vector<double>{2, 3, 4, 5}));
  EXPECT_EQ(ranking.valid(), 3);
  EXPECT_EQ(seconds_of(ranking.front()), (std::vector<double>{5, 4}));
  // Neither more of what may fit than the second nor more of what does than the fifth is kept.
  EXPECT_EQ(ranking.complete_until(), 3);
  Ranking all(100, 20);
  all.take({}, {1, 50});
  EXPECT_TRUE(std::isinf(all.complete_until()));
}

TEST(Ranking, FindsTheFastestAndTheSmallestOfCuts) {
  Ranking ranking(100, 1);
  const auto take = [&](int64_t tp, int64_t pp, double seconds, double bytes) {
    SearchLayout layout;
    layout.tp = tp;
    layout.pp = pp;
    ranking.take(layout, {seconds, bytes});
  };
  take(1, 1, 1, 50);
  take(2, 1, 5, 50);
  take(2, 2, 4, 60);
  take(2, 2, 3, 100.5);
  take(2, 4, 4.5, 99.5);
  take(4, 1, 2, 300);
  take(4, 2, 3, 200);
  const auto with_tp = [](int64_t tp) { return [=](const Ranking::Cut& cut) { return cut.tp == tp; }; };
  EXPECT_EQ(seconds_of(ranking.fastest_of(with_tp(2))), (std::vector<double>{3, 4}));
  EXPECT_EQ(ranking.smallest_of(with_tp(2))->evaluation.bytes, 50);
  EXPECT_TRUE(ranking.fastest_of(with_tp(4)).empty());
  EXPECT_EQ(ranking.smallest_of(with_tp(4))->layout.pp, 2);
  EXPECT_FALSE(ranking.smallest_of(with_tp(8)).has_value());
}

}  // namespace
}  // namespace lockstep::plan
