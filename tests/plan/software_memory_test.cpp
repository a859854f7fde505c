// Memory as other training programs hold it: keys of [software], and recomputation of every second product.
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/drawn_run.hpp"
#include "parallel/live_bytes.hpp"
#include "plan/memory.hpp"
#include "plan/pass_memory.hpp"

namespace lockstep::plan {
namespace {

StageMemory stage_0(const config::RunFile& run) {
  const parallel::Layout layout(run);
  return memory_of(layout, parallel::build_step_programs(layout)).stages.at(0);
}

// hidden 64, ffn 96, 8 heads, 4 KV heads, vocab 256, sequence 16, 8 layers; bf16.

TEST(SoftwareMemory, ReducedGradientsInPlaceTakeNoBufferOfTheirOwn) {
  config::RunFile run = tests::sample_run(2, 1, 3, 1, 1);
  const StageMemory beside = stage_0(run);
  run.software.reduce_in_place = true;
  const StageMemory in_place = stage_0(run);
  EXPECT_GT(beside.reduced, 0);
  EXPECT_EQ(in_place.reduced, 0);
  EXPECT_EQ(in_place.tensors(), beside.tensors() - beside.reduced);
  // A reduction a chunk and micro-batch adds to what earlier ones summed: that needs a place.
  run.parallel.zero = 2;
  EXPECT_GT(stage_0(run).reduced, 0);
}

TEST(SoftwareMemory, StandInsAreOneLayersMatricesInTheDtypeOfCompute) {
  config::RunFile run = tests::sample_run(2, 1, 1, 1, 1);
  EXPECT_EQ(stage_0(run).stand_ins, 0);
  run.software.fused_weight_gradients = true;
  // q 32, k and v 16 each, out 32, gate and up 96, down 48 rows or columns of 64.
  EXPECT_EQ(stage_0(run).stand_ins, (32 + 2 * 16 + 32 + 96 + 48) * 64 * 2);
}

TEST(SoftwareMemory, TheLossHoldsWhatItIsSaidTo) {
  config::RunFile run = tests::sample_run(1, 1, 1, 1, 2);
  const StageMemory plain = stage_0(run);
  run.software.loss_memory = 14;
  // The fullest moment is the head's either way: 12 bytes a logit on top of the 2 of bf16.
  EXPECT_EQ(stage_0(run).tensors(), plain.tensors() + 12 * 16 * 256);
}

TEST(SoftwareMemory, TheMarginIsTheShareThatIsSaid) {
  config::RunFile run = tests::sample_run(2, 1, 1, 1, 1);
  const int64_t tensors = stage_0(run).tensors();
  EXPECT_EQ(stage_0(run).margin, tensors / 20) << "a twentieth where nothing is said";
  run.software.memory_margin = 0;
  EXPECT_EQ(stage_0(run).total(), tensors);
  run.software.memory_margin = 0.25;
  EXPECT_EQ(stage_0(run).margin, tensors / 4);
  EXPECT_EQ(stage_0(run).tensors(), tensors);
}

TEST(SecondProducts, KeepTheirShareOfALayerAndRunTheRestAgain) {
  config::RunFile run = tests::sample_run(1, 1, 1, 1, 1);
  run.parallel.recompute = {"second_products"};
  const parallel::Layout layout(run);
  // The layer's input, q, v, attention's output, gate and down, and a statistic a head and token.
  const int64_t layer = (16 * 64 + 16 * (64 + 32 + 64 + 96 + 64)) * 2 + 16 * 8 * 4;
  EXPECT_EQ(model::layer_activation_bytes(layout.shape(), layout.layers().recompute), layer);
  const std::vector<model::Op> again = layout.layers().layer_recompute();
  double flops = 0;
  for (const model::Op& op : again) {
    EXPECT_NE(op.kind, model::OpKind::attention);
    flops += op.flops;
  }
  EXPECT_EQ(flops, 2.0 * 16 * (32 * 64 + 64 * 64 + 96 * 64));  // k, out, up
}

// What a forward leaves is what is live between passes, and backward takes it again.
TEST(SecondProducts, PassesLeaveWhatLiveActivationsCount) {
  for (const int tp : {1, 2}) {
    config::RunFile run = tests::sample_run(tp, 1, 1, 1, 1);
    run.parallel.recompute = {"second_products"};
    const parallel::Layout layout(run);
    parallel::LiveActivations live(layout, 0);
    const parallel::Action forward{.kind = parallel::ActionKind::forward, .chunk = 0};
    live.take(forward);
    const PassMemory there = pass_memory(layout, 0, parallel::ActionKind::forward, 0);
    const PassMemory back = pass_memory(layout, 0, parallel::ActionKind::backward, 0);
    EXPECT_EQ(there.change, live.bytes()) << tp;
    EXPECT_EQ(back.change, -live.bytes()) << tp;
    run.parallel.recompute = {};
    const parallel::Layout keeps_all(run);
    parallel::LiveActivations all(keeps_all, 0);
    all.take(forward);
    EXPECT_LT(live.bytes(), all.bytes());
  }
}

}  // namespace
}  // namespace lockstep::plan
