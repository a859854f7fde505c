// Every input of the model moves the step the right way, and by as much as its share of the step allows.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "config/load.hpp"
#include "config/rules.hpp"
#include "plan/report.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::plan {
namespace {

using config::RunFile;

RunFile large_run() { return config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", {}); }

double planned(const RunFile& run) {
  const parallel::Layout layout(run);
  return step_time(layout, parallel::build_step_programs(layout)).seconds;
}

double simulated(const RunFile& run) {
  const parallel::Layout layout(run);
  sim::StepOptions options = sim::step_options(run.simulate);
  options.jitter = false;
  return sim::simulate_step(layout, parallel::build_step_programs(layout), options).seconds;
}

struct Input {
  const char* name;
  double config::ClusterConfig::*figure;
  double sign;         // of the step's answer to more of it
  double least, most;  // by how many percent the step moves for one percent of it
};

// What the step consists of: rates, and times.
const std::vector<Input> inputs = {
    {"peak_flops_bf16", &config::ClusterConfig::peak_flops_bf16, -1, 0.5, 0.9},
    {"memory_bandwidth", &config::ClusterConfig::memory_bandwidth, -1, 0.01, 0.25},
    {"nvlink_bandwidth", &config::ClusterConfig::nvlink_bandwidth, -1, 0.05, 0.3},
    {"nic_bandwidth", &config::ClusterConfig::nic_bandwidth, -1, 0.01, 0.2},
    {"storage_bandwidth", &config::ClusterConfig::storage_bandwidth, -1, 0, 1e-3},
    {"launch_seconds", &config::ClusterConfig::launch_seconds, 1, 1e-4, 0.05},
    {"nvlink_latency", &config::ClusterConfig::nvlink_latency, 1, 1e-4, 0.05},
    {"nic_latency", &config::ClusterConfig::nic_latency, 1, 1e-5, 0.05},
    {"switch_latency", &config::ClusterConfig::switch_latency, 1, 0, 0.02},
    {"message_overhead", &config::ClusterConfig::message_overhead, 1, 1e-4, 0.05},
    {"storage_latency", &config::ClusterConfig::storage_latency, 1, 0, 1e-3},
};

RunFile with(RunFile run, const Input& input, double times) {
  run.cluster.*input.figure *= times;
  return run;
}

// Percent that the step moves for a percent more of an input.
double elasticity(const RunFile& run, const Input& input, double (*seconds)(const RunFile&)) {
  constexpr double step = 0.01;
  return std::log(seconds(with(run, input, 1 + step)) / seconds(with(run, input, 1 / (1 + step)))) /
         (2 * std::log1p(step));
}

// Euler: what is proportional to times and inversely to rates has elasticities that sum to one.
TEST(Perturbation, InputsMoveTheStepByTheirShares) {
  RunFile run = large_run();
  run.cluster.low_latency_protocols = false;  // their bandwidths are NCCL's constants
  for (double (*seconds)(const RunFile&) : {planned, simulated}) {
    SCOPED_TRACE(seconds == planned ? "plan" : "simulate");
    double sum = 0;
    for (const Input& input : inputs) {
      const double moved = input.sign * elasticity(run, input, seconds);
      EXPECT_GE(moved, input.least) << input.name;
      EXPECT_LE(moved, input.most) << input.name;
      sum += moved;
    }
    EXPECT_NEAR(sum, 1, 0.01);
  }
}

// All rates twice, all times half: the step takes half as long, to rounding.
TEST(Perturbation, AClusterTwiceAsFastTakesHalfAsLong) {
  RunFile run = large_run();
  run.cluster.low_latency_protocols = false;
  RunFile fast = run;
  for (const Input& input : inputs) fast.cluster.*input.figure *= input.sign < 0 ? 2 : 0.5;
  EXPECT_NEAR(planned(fast) * 2, planned(run), 1e-9 * planned(run));
  EXPECT_NEAR(simulated(fast) * 2, simulated(run), 1e-9 * simulated(run));
}

struct Change {
  const char* name;
  std::function<void(RunFile&)> change;
  double least, most;  // the step's ratio
};

// By how much there is more to do: 126 layers, each with the same FLOPs; causal attention is a tenth of them.
TEST(Perturbation, TheModelAndTheBatchMoveTheStep) {
  const std::vector<Change> changes = {
      {"twice the layers", [](RunFile& r) { r.model.layers = 254; }, 1.9, 2.1},
      {"twice the batch", [](RunFile& r) { r.train.global_batch *= 2; }, 1.7, 2.0},
      {"half the batch: fewer micro-batches than stages, the way through them counts",
       [](RunFile& r) { r.train.global_batch /= 2; }, 0.9, 1.0},
      {"twice the sequence", [](RunFile& r) { r.train.sequence *= 2; }, 1.95, 2.4},
      {"half the feed-forward width", [](RunFile& r) { r.model.ffn /= 2; }, 0.55, 0.75},
      {"twice the vocabulary", [](RunFile& r) { r.model.vocab *= 2; }, 1.0, 1.1},
      {"half the replicas, same batch",
       [](RunFile& r) {
         r.parallel.dp = 64;
         r.cluster.gpus = 8192;
       },
       1.7, 2.0},
      {"no recomputation", [](RunFile& r) { r.parallel.recompute = {}; }, 0.9, 1.0},
      {"full recomputation", [](RunFile& r) { r.parallel.recompute = {"full"}; }, 1.15, 1.4},
      {"no interleaving",
       [](RunFile& r) {
         r.parallel.virtual_stages = 1;
         r.parallel.schedule = config::ScheduleKind::one_f_one_b;
         r.model.layers = 128;
         r.parallel.first_stage_less_layers = r.parallel.last_stage_less_layers = 0;
       },
       1.4, 1.9},
      {"no sequence parallelism", [](RunFile& r) { r.parallel.sequence_parallel = false; }, 1.0, 1.5},
      {"a whole rail a pod of 1:1", [](RunFile& r) { r.cluster.pod_oversubscription = 1; }, 0.9, 1.0},
  };
  const RunFile run = large_run();
  for (double (*seconds)(const RunFile&) : {planned, simulated}) {
    SCOPED_TRACE(seconds == planned ? "plan" : "simulate");
    const double before = seconds(run);
    for (const Change& c : changes) {
      RunFile changed = run;
      c.change(changed);
      std::vector<config::Problem> problems;
      config::check_rules(changed, {}, problems);
      ASSERT_TRUE(problems.empty()) << c.name << ": " << to_string(problems.front());
      const double ratio = seconds(changed) / before;
      EXPECT_GE(ratio, c.least) << c.name;
      EXPECT_LE(ratio, c.most) << c.name;
    }
  }
}

// What is sharded halves with twice the ranks; activations go with what is under way.
TEST(Perturbation, MemoryGoesWithWhatIsHeld) {
  const RunFile run = large_run();
  const StageMemory before = plan_of(run).memory.fullest();
  const auto ratio = [&](int64_t StageMemory::*part, const std::function<void(RunFile&)>& change) {
    RunFile changed = run;
    change(changed);
    return static_cast<double>(plan_of(changed).memory.fullest().*part) / static_cast<double>(before.*part);
  };
  const auto half_the_replicas = [](RunFile& r) {
    r.parallel.dp = 64;
    r.cluster.gpus = 8192;
  };
  EXPECT_NEAR(ratio(&StageMemory::optimizer, half_the_replicas), 2, 5e-3);
  EXPECT_NEAR(ratio(&StageMemory::weights, half_the_replicas), 1, 5e-3);
  // All 16 micro-batches are under way; as 8 of two sequences they are as much.
  EXPECT_EQ(ratio(&StageMemory::activations, [](RunFile& r) { r.parallel.micro_batch = 2; }), 1);
  // A hidden unit's matrices are of its layer's width.
  EXPECT_NEAR(ratio(&StageMemory::weights, [](RunFile& r) { r.model.ffn *= 2; }), 1.82, 0.01);
}

}  // namespace
}  // namespace lockstep::plan
