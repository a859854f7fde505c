// Steps are put together in order, whole, and at the end with whatever came.
#include "cli/step_assembly.hpp"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

observe::StepRecord record(int64_t step) {
  observe::StepRecord r;
  r.step = step;
  r.loss = 1.0 / static_cast<double>(step);
  return r;
}

observe::WaitMessage waits(int rank, int64_t step, double tp, int64_t resident = 0) {
  return {rank, step, {{.tp = tp}, {.pp = tp}}, 0, resident};
}

TEST(StepAssembly, GivesAStepOutWhenAllOfItHasCome) {
  StepAssembly assembly(2);
  EXPECT_FALSE(assembly.next());
  assembly.add(record(1));
  assembly.add(waits(1, 1, 3));
  EXPECT_FALSE(assembly.next()) << "rank 0's waits are not there";
  assembly.add(waits(1, 2, 7));  // ahead of the others
  assembly.add(waits(0, 1, 1));
  const auto step = assembly.next();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->record.step, 1);
  EXPECT_EQ(step->record.loss, 1);
  ASSERT_TRUE(step->record.waits);
  EXPECT_EQ(step->record.waits->exposed.tp, 2);
  EXPECT_EQ(step->record.waits->under_way.pp, 2);
  ASSERT_EQ(step->ranks.size(), 2u);
  EXPECT_EQ(step->ranks[0].rank, 0);
  EXPECT_EQ(step->ranks[1].waits.exposed.tp, 3);
  EXPECT_FALSE(assembly.next());
}

TEST(StepAssembly, MemoryIsOfTheFullestWorkerOrRank0sWhenSomeNeverCame) {
  StepAssembly assembly(3);
  for (int64_t step = 1; step <= 2; ++step) {
    observe::StepRecord r = record(step);
    r.memory_bytes = 100;
    assembly.add(r);
    assembly.add(waits(0, step, 1, 100));
    assembly.add(waits(1, step, 1, 300));
  }
  assembly.add(waits(2, 1, 1, 200));
  EXPECT_EQ(assembly.next()->record.memory_bytes, 300);
  EXPECT_FALSE(assembly.next());
  EXPECT_EQ(assembly.next_as_it_is()->record.memory_bytes, 100);
}

TEST(StepAssembly, KeepsTheOrderOfSteps) {
  StepAssembly assembly(1);
  assembly.add(waits(0, 2, 1));
  assembly.add(record(2));
  assembly.add(waits(0, 1, 1));
  EXPECT_FALSE(assembly.next()) << "step 1 is still to come";
  assembly.add(record(1));
  EXPECT_EQ(assembly.next()->record.step, 1);
  EXPECT_EQ(assembly.next()->record.step, 2);
}

TEST(StepAssembly, AtTheEndAStepComesWithoutTheWaitsOfADeadWorker) {
  StepAssembly assembly(2);
  for (int64_t step = 1; step <= 2; ++step) {
    assembly.add(record(step));
    assembly.add(waits(0, step, 4));
  }
  assembly.add(waits(0, 3, 4));  // rank 0 died before it reported step 3
  EXPECT_FALSE(assembly.next());
  for (int64_t step = 1; step <= 2; ++step) {
    const auto got = assembly.next_as_it_is();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->record.step, step);
    EXPECT_FALSE(got->record.waits) << "a mean over some ranks would mislead";
    EXPECT_EQ(got->ranks.size(), 1u);
  }
  EXPECT_FALSE(assembly.next_as_it_is());
}

TEST(StepAssembly, WhatComesTooLateDoesNotHoldTheRestUp) {
  StepAssembly assembly(1);
  assembly.add(record(1));
  ASSERT_TRUE(assembly.next_as_it_is());
  assembly.add(waits(0, 1, 1));
  assembly.add(record(2));
  assembly.add(waits(0, 2, 1));
  ASSERT_TRUE(assembly.next());
}

}  // namespace
}  // namespace lockstep::cli
