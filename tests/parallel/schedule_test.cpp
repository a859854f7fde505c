#include "parallel/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace lockstep::parallel {
namespace {

using config::ScheduleKind;

// Time from the first start to the last end, forwards 1 and backwards 2 (their halves 1 each).
double makespan(const Schedule& schedule) {
  const auto starts = slot_starts(schedule);
  double end = 0;
  for (size_t r = 0; r < starts.size(); ++r) {
    for (size_t i = 0; i < starts[r].size(); ++i) {
      end = std::max(end, starts[r][i] + (schedule.ranks[r][i].pass == Pass::backward ? 2.0 : 1.0));
    }
  }
  return end;
}

TEST(Schedule, GPipeAnd1F1BTakeMicroBatchesPlusStagesLessOne) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 17; ++m) {
        EXPECT_DOUBLE_EQ(makespan(build_schedule(kind, p, 1, m)), 3.0 * (m + p - 1)) << p << " " << m;
      }
    }
  }
}

// Narayanan et al. 2021: the bubble shrinks by the number of chunks a rank holds.
TEST(Schedule, InterleavingDividesTheBubble) {
  for (int p = 2; p <= 8; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (const int groups : {1, 2, 3}) {
        const int m = groups * p;
        const double idle = makespan(build_schedule(ScheduleKind::interleaved, p, v, m)) - 3.0 * m * v;
        EXPECT_DOUBLE_EQ(idle, 3.0 * (p - 1)) << p << " " << v << " " << m;
      }
    }
  }
}

TEST(Schedule, PeakOfLiveActivations) {
  for (int p = 1; p <= 6; ++p) {
    for (int m = 1; m <= 13; ++m) {
      const Schedule gpipe = build_schedule(ScheduleKind::gpipe, p, 1, m);
      const Schedule one = build_schedule(ScheduleKind::one_f_one_b, p, 1, m);
      for (int r = 0; r < p; ++r) {
        EXPECT_EQ(peak_live(gpipe, r), m);
        EXPECT_EQ(peak_live(one, r), std::min(p - r, m));
      }
    }
  }
  for (int p = 2; p <= 6; ++p) {
    for (int v = 2; v <= 4; ++v) {
      const int m = 3 * p;
      const Schedule s = build_schedule(ScheduleKind::interleaved, p, v, m);
      for (int r = 0; r < p; ++r)
        EXPECT_EQ(peak_live(s, r), std::min((v - 1) * p + 2 * (p - 1 - r) + 1, m * v));
    }
  }
}

// Qi et al., arXiv:2401.10241, table 1 and section 2.2: with equal passes the bubble of H1 is a third of
// 1F1B's, (p-1)(F + B - W), and no rank holds more than 1F1B's first one.
TEST(Schedule, ZeroBubbleH1HasAThirdOfTheBubble) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 3 * p + 2; ++m) {
      const Schedule s = build_schedule(ScheduleKind::zero_bubble_h1, p, 1, m);
      EXPECT_DOUBLE_EQ(makespan(s) - 3.0 * m, p - 1) << p << " " << m;
      for (int r = 0; r < p; ++r) EXPECT_LE(peak_live(s, r), p);
    }
  }
}

TEST(Schedule, OneRankTakesAMicroBatchThroughAllItsChunks) {
  const Schedule s = build_schedule(ScheduleKind::interleaved, 1, 3, 5);
  EXPECT_DOUBLE_EQ(makespan(s), 3.0 * 3 * 5);
  EXPECT_EQ(peak_live(s, 0), 3);
}

void expect_every_pass_in_order(const Schedule& s) {
  for (const auto& slots : s.ranks) {
    for (int chunk = 0; chunk < s.virtual_stages; ++chunk) {
      std::array<int, 4> done{};
      for (const Slot& slot : slots) {
        // Gradients are summed in the order of micro-batches, whatever the layout.
        if (slot.chunk == chunk) {
          EXPECT_EQ(slot.micro_batch, done[static_cast<size_t>(slot.pass)]++);
        }
      }
      EXPECT_EQ(done[0], s.micro_batches);
      EXPECT_EQ(done[1] + done[2], s.micro_batches);
      EXPECT_EQ(done[2], done[3]);
    }
  }
}

TEST(Schedule, EveryCountOfMicroBatchesRunsAndKeepsTheirOrder) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                  ScheduleKind::zero_bubble_h1}) {
    for (int p = 1; p <= 7; ++p) {
      for (int v = 1; v <= (kind == ScheduleKind::interleaved ? 4 : 1); ++v) {
        for (int m = 1; m <= 2 * p + 3; ++m) {
          const Schedule s = build_schedule(kind, p, v, m);
          EXPECT_NO_THROW(slot_starts(s));
          expect_every_pass_in_order(s);
        }
      }
    }
  }
}

TEST(Schedule, ACircleIsNamed) {
  Schedule s = build_schedule(ScheduleKind::one_f_one_b, 2, 1, 2);
  std::reverse(s.ranks[1].begin(), s.ranks[1].end());
  EXPECT_THROW(slot_starts(s), RunError);
}

}  // namespace
}  // namespace lockstep::parallel
