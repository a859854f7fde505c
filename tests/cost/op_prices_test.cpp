#include "cost/op_prices.hpp"

#include <gtest/gtest.h>

#include "parallel/sample_run.hpp"

namespace lockstep::cost {
namespace {

config::RunFile round_numbers() {
  config::RunFile run = tests::sample_run(1, 1, 1, 1, 1);
  run.cluster.gpus_per_node = run.cluster.gpus_per_pod = 8;
  run.cluster.peak_flops_bf16 = 1000e12;
  run.cluster.gemm_efficiency = 0.5;
  run.cluster.attention_efficiency = 0.25;
  run.cluster.memory_bandwidth = 2e12;
  run.cluster.memory_efficiency = 0.5;
  run.cluster.launch_seconds = 1e-6;
  return run;
}

TEST(OpPrices, EachKindOfKernel) {
  const OpPrices prices(round_numbers());
  const auto seconds = [&](model::OpKind kind, double flops, int64_t bytes) {
    return prices.kernel_seconds(
        {"op", kind, model::Axis::none, model::Stream::compute, bytes, flops, 1280, 1280, 64});
  };
  EXPECT_NEAR(seconds(model::OpKind::memory, 0, 1000000), 1e-6 + 1e-6, 1e-15);
  EXPECT_NEAR(seconds(model::OpKind::host, 0, 1000000), 1e-6 + 1e-6, 1e-15);
  EXPECT_NEAR(seconds(model::OpKind::attention, 250e12, 8), 1 + 1e-6, 1e-12);
  // Depth 64 reaches half of the large product's speed.
  EXPECT_NEAR(seconds(model::OpKind::gemm, 250e12, 8), 1 + 1e-6, 1e-12);
  EXPECT_THROW(seconds(model::OpKind::send, 0, 8), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::cost
