#include "parallel/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"

namespace lockstep::parallel {
namespace {

using config::ScheduleKind;

// Time from the first start to the last end, forwards 1 and backwards 2.
double makespan(const Schedule& schedule) {
  const auto starts = slot_starts(schedule);
  double end = 0;
  for (size_t r = 0; r < starts.size(); ++r) {
    for (size_t i = 0; i < starts[r].size(); ++i) {
      end = std::max(end, starts[r][i] + (schedule.ranks[r][i].pass == Pass::forward ? 1.0 : 2.0));
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

TEST(Schedule, EveryCountOfMicroBatchesRunsAndKeepsTheirOrder) {
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
    for (int p = kind == ScheduleKind::interleaved ? 2 : 1; p <= 7; ++p) {
      for (int v = 1; v <= (kind == ScheduleKind::interleaved ? 4 : 1); ++v) {
        for (int m = 1; m <= 2 * p + 3; ++m) {
          const Schedule s = build_schedule(kind, p, v, m);
          EXPECT_NO_THROW(slot_starts(s));
          for (const auto& slots : s.ranks) {
            ASSERT_EQ(slots.size(), static_cast<size_t>(2 * v * m));
            for (int chunk = 0; chunk < v; ++chunk) {
              int forwards = 0, backwards = 0;
              for (const Slot& slot : slots) {
                if (slot.chunk != chunk) continue;
                // Gradients are summed in the order of micro-batches, whatever the layout.
                EXPECT_EQ(slot.micro_batch, slot.pass == Pass::forward ? forwards++ : backwards++);
              }
              EXPECT_EQ(forwards, m);
              EXPECT_EQ(backwards, m);
            }
          }
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
