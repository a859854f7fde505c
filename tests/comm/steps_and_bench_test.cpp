// The step executor against the communicator's own collectives, and the benchmark against its definitions.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <stdexcept>

#include "base/error.hpp"
#include "comm/bench.hpp"
#include "comm/message_bench.hpp"
#include "comm/process_ranks.hpp"
#include "comm/step_executor.hpp"
#include "ranks.hpp"

namespace lockstep::comm::test {
namespace {

using collective::Collective;

// Integers, so that every order of the sum gives the same bits.
float element(int rank, size_t i) {
  return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 101) - 50.f;
}

void check_algorithm(Communicator& group, const collective::StepList& list, size_t count) {
  const int me = group.rank();
  std::vector<float> data(count), expected(count);
  for (size_t i = 0; i < count; ++i) data[i] = element(me, i);
  if (list.collective == Collective::all_gather) {
    for (int c = 0; c < list.chunks; ++c)
      for (auto [i, end] = collective::chunk_range(count, list.chunks, c); i < end; ++i)
        expected[i] = element(c, i);
  } else if (list.collective == Collective::broadcast) {
    for (size_t i = 0; i < count; ++i) expected[i] = element(0, i);
  } else {
    expected = data;
    group.all_reduce(expected.data(), count, DataType::f32);
  }
  run_steps(list, group, data.data(), count, DataType::f32, ReduceOp::sum, 9);
  const bool scattered = list.collective == Collective::reduce_scatter;
  const auto range =
      scattered ? collective::chunk_range(count, list.chunks, me) : collective::Range{0, count};
  for (size_t i = range.begin; i < range.end; ++i)
    if (data[i] != expected[i])
      throw std::runtime_error(list.algorithm + " " + std::string(name_of(list.collective)) + " of " +
                               std::to_string(count) + ": element " + std::to_string(i));
}

void check_all_algorithms(World& world) {
  const auto group = world.group("g", everyone(world.size()));
  for (const Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::broadcast})
    for (const std::string& algorithm : algorithms_for(c, world.size()))
      for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{8}, size_t{1000}, size_t{100'003}})
        check_algorithm(*group, build(c, algorithm, world.size()), count);
}

TEST(StepExecutor, EveryAlgorithmGivesTheCommunicatorsResult) {
  for (const int ranks : {1, 2, 3, 4, 7, 8}) {
    expect_no_errors(run_threads(ranks, check_all_algorithms));
    expect_no_errors(run_processes(ranks, check_all_algorithms));
  }
}

TEST(StepExecutor, AListForOtherRanksIsRefused) {
  LocalWorld world(SharedArena::create(2), 0);
  const auto group = world.group("g", {0, 1});
  float value = 0;
  EXPECT_THROW(run_steps(collective::ring(Collective::all_reduce, 3), *group, &value, 1, DataType::f32,
                         ReduceOp::sum, 0),
               UsageError);
}

TEST(Bench, RowsFollowNcclTests) {
  for (const std::string algorithm : {"", "ring", "direct"}) {
    for (const auto& [collective, factor] :
         {std::pair(Collective::all_reduce, 1.5), std::pair(Collective::all_gather, 0.75),
          std::pair(Collective::reduce_scatter, 0.75)}) {
      const auto rows = bench_collective({collective, 4, {1024, 1 << 16}, algorithm, 3, 5});
      ASSERT_EQ(rows.size(), 2u);
      for (const BenchRow& row : rows) {
        EXPECT_EQ(row.wrong, 0u);
        EXPECT_EQ(row.ranks, 4);
        EXPECT_EQ(row.algorithm, algorithm.empty() ? "local" : algorithm);
        EXPECT_GT(row.microseconds, 0);
        EXPECT_DOUBLE_EQ(row.algbw_gbps, static_cast<double>(row.bytes) / (row.microseconds * 1e-6) / 1e9);
        EXPECT_DOUBLE_EQ(row.busbw_gbps, row.algbw_gbps * factor);
      }
      EXPECT_EQ(rows[1].bytes, 65536u);
    }
  }
}

bool is_running(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  return std::getline(status, text) && text.find(") Z ") == std::string::npos;
}

// A launcher that is killed with no chance to tidy up.
TEST(Bench, ProcessesDieWithTheirParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    run_in_processes(3, [&](World&) {
      const pid_t me = getpid();
      if (write(ends[1], &me, sizeof me) != sizeof me) return std::string("cannot write");
      for (;;) pause();
    });
    _exit(1);
  }
  std::vector<pid_t> pids(3);
  for (pid_t& pid : pids) ASSERT_EQ(read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  for (const pid_t pid : pids) EXPECT_TRUE(is_running(pid));
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  for (int tries = 0; tries < 100; ++tries) {
    std::erase_if(pids, [](pid_t pid) { return !is_running(pid); });
    if (pids.empty()) break;
    usleep(20'000);
  }
  EXPECT_TRUE(pids.empty()) << pids.size() << " still run";
  close(ends[0]);
  close(ends[1]);
}

TEST(Bench, WhatARankThrowsAndWhatKillsItIsReported) {
  const auto outcomes = run_in_processes(3, [](World& world) -> std::string {
    const auto group = world.group("g", everyone(3));
    if (world.rank() == 0) throw std::runtime_error("no luck");
    group->barrier();
    return "fine";
  });
  EXPECT_EQ(outcomes[0].error, "no luck");
  EXPECT_NE(outcomes[1].error.find("global rank 0 died (no luck)"), std::string::npos) << outcomes[1].error;
  const auto reports =
      run_in_processes(2, [](World& world) { return std::string(200'000, world.rank() == 0 ? 'a' : 'b'); });
  EXPECT_EQ(reports[1].report, std::string(200'000, 'b'));
  EXPECT_EQ(reports[1].error, "");
}

TEST(Bench, MessagesTakeLongerWhenTheyAreLarger) {
  const std::vector<MessageRow> rows = bench_messages({1, size_t{16} << 20}, 3);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].bytes, size_t{16} << 20);
  EXPECT_GT(rows[0].microseconds, 0.01) << "no memory is as fast";
  // Copied in and out, at no more than 1 TB/s.
  EXPECT_GT(rows[1].microseconds, 32);
  EXPECT_GT(rows[1].microseconds, rows[0].microseconds);
  EXPECT_THROW(bench_messages({0}), UsageError);
  EXPECT_THROW(bench_messages({8}, 0), UsageError);
}

TEST(Bench, WrongOptionsAreRefused) {
  EXPECT_THROW(bench_collective({Collective::all_reduce, 2, {6}, "", 1, 1}), UsageError);
  EXPECT_THROW(bench_collective({Collective::all_gather, 3, {1024}, "", 1, 1}), UsageError);
  EXPECT_THROW(bench_collective({Collective::all_reduce, 0, {1024}, "", 1, 1}), UsageError);
  EXPECT_THROW(bench_collective({Collective::all_reduce, 6, {1024}, "halving_doubling", 1, 1}), UsageError);
  EXPECT_THROW(bench_collective({Collective::all_reduce, 2, {size_t{1} << 50}, "", 1, 1}), UsageError);
}

}  // namespace
}  // namespace lockstep::comm::test
