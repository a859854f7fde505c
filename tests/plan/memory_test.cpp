#include "plan/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.hpp"
#include "parallel/drawn_run.hpp"
#include "parallel/live_bytes.hpp"
#include "parallel/step_ops.hpp"
#include "plan/pass_memory.hpp"
#include "plan/traffic.hpp"

namespace lockstep::plan {
namespace {

MemoryReport memory(const config::RunFile& run) {
  const parallel::Layout layout(run);
  return memory_of(layout, parallel::build_step_programs(layout));
}

int64_t padded(int64_t elements, int64_t ranks) { return parallel::make_segment(elements, ranks).padded(); }

// hidden 64, ffn 96, 8 heads, 4 KV heads, vocab 256, sequence 16, 8 layers; bf16.
constexpr int64_t layer_parameters = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64 + 2 * 64;

TEST(Memory, OneRankByHand) {
  const MemoryReport report = memory(tests::sample_run(1, 1, 1, 1, 2));
  const StageMemory& m = report.stages.at(0);
  const int64_t parameters = padded(8 * layer_parameters + 2 * 256 * 64 + 64, 1);
  EXPECT_EQ(m.weights, 2 * parameters);
  EXPECT_EQ(m.gradients, 4 * parameters);
  EXPECT_EQ(m.optimizer, 12 * parameters);
  EXPECT_EQ(m.reduced, 0);  // a lone worker's gradients are reduced as they are
  // A layer keeps the inputs and outputs of both norms, q k v, attention's output, gate, up and the down
  // product's input, and a statistic a head and token.
  const int64_t layer = (4 * 16 * 64 + 16 * (64 + 2 * 32) + 16 * 64 + 3 * 16 * 96) * 2 + 16 * 8 * 4;
  const int64_t embedding = 16 * 8;
  const int64_t head = (2 * 16 * 64 + 16 * 256) * 2 + 16 * (4 + 8);
  EXPECT_EQ(m.activations, 8 * layer + embedding);  // 1F1B with one stage: one micro-batch at a time
  EXPECT_EQ(m.logits, head);
  EXPECT_EQ(m.gathered, 0);
  EXPECT_EQ(m.messages, 0);
  EXPECT_EQ(m.tables, 16 * 8 * 4 + 2 * 16 * 8);  // an angle's cosine and sine a pair, two places a token
  // The fullest moment: all is kept, and the output matrix' gradient is there once more in bf16, beside the
  // gradient of the head's input, which took the place of targets, statistics and the input itself.
  EXPECT_EQ(m.workspace, 256 * 64 * 2 - 16 * (4 + 8));
  EXPECT_EQ(m.margin, static_cast<int64_t>(0.05 * static_cast<double>(m.tensors())));
  EXPECT_EQ(m.total(), m.weights + m.gradients + m.optimizer + m.activations + m.logits + m.messages +
                           m.reduced + m.workspace + m.tables + m.margin);
}

TEST(Memory, ShardsAndCuts) {
  // tp 2, dp 3: a chunk's blocks of 64 elements are dealt to 3.
  const MemoryReport report = memory(tests::sample_run(2, 1, 3, 1, 1));
  const int64_t elements = 8 * ((layer_parameters - 128) / 2 + 128) + 2 * 128 * 64 + 64;
  const int64_t shard = padded(elements, 3) / 3;
  EXPECT_GE(shard * 3, elements);
  EXPECT_LT(shard * 3, elements + 3 * 64);
  EXPECT_EQ(report.stages[0].weights, 3 * shard * 2);
  EXPECT_EQ(report.stages[0].gradients, 3 * shard * 4);
  EXPECT_EQ(report.stages[0].optimizer, shard * 12);
  EXPECT_EQ(report.stages[0].reduced, shard * 4);
}

// The norm needs every chunk's reduced gradients before the optimizer may use the first one's.
TEST(Memory, ReducedGradientsOfAllChunksAreHeldAtOnce) {
  const MemoryReport report = memory(tests::sample_run(1, 2, 2, 4, 2));  // a chunk is a layer
  const auto shard = [](int64_t elements) { return padded(elements, 2) / 2; };
  EXPECT_EQ(report.stages[0].reduced, 4 * (3 * shard(layer_parameters) + shard(layer_parameters + 256 * 64)));
  EXPECT_EQ(report.stages[1].reduced,
            4 * (3 * shard(layer_parameters) + shard(layer_parameters + 256 * 64 + 64)));
}

TEST(Memory, OneFOneBHoldsAsManyMicroBatchesAsStagesFollow) {
  const MemoryReport report = memory(tests::sample_run(1, 4, 1, 1, 8));
  const int64_t layer = (4 * 16 * 64 + 16 * (64 + 2 * 32) + 16 * 64 + 3 * 16 * 96) * 2 + 16 * 8 * 4;
  EXPECT_EQ(report.stages[0].activations, 4 * (2 * layer + 16 * 8));
  EXPECT_EQ(report.stages[1].activations, 3 * 2 * layer);
  EXPECT_EQ(report.stages[2].activations, 2 * 2 * layer);
  EXPECT_GT(report.stages[1].messages, 0);

  config::RunFile gpipe = tests::sample_run(1, 4, 1, 1, 8);
  gpipe.parallel.schedule = config::ScheduleKind::gpipe;
  EXPECT_EQ(memory(gpipe).stages[2].activations, 8 * 2 * layer);
}

// Stage 0 of 1F1B fills up with four micro-batches, turns, and drains.
TEST(Memory, TheCurveIsTheSchedules) {
  const config::RunFile run = tests::sample_run(1, 4, 1, 1, 6);
  const parallel::Layout layout(run);
  const int64_t layer = (4 * 16 * 64 + 16 * (64 + 2 * 32) + 16 * 64 + 3 * 16 * 96) * 2 + 16 * 8 * 4;
  std::vector<int64_t> held;
  for (const MemoryMoment& m : memory_curve(layout, parallel::build_step_programs(layout)[0])) {
    EXPECT_EQ(m.activations % (2 * layer + 16 * 8), 0);
    held.push_back(m.activations / (2 * layer + 16 * 8));
  }
  EXPECT_EQ(held, (std::vector<int64_t>{1, 2, 3, 4, 3, 4, 3, 4, 3, 2, 1, 0}));
}

// With zero = 3 a rank keeps its shards, and has the chunks whole that are gathered.
TEST(Memory, GatheredParametersAreToldFromShards) {
  config::RunFile run = tests::sample_run(1, 1, 4, 1, 1);
  run.parallel.zero = 3;
  const StageMemory m = memory(run).stages[0];
  const int64_t whole = padded(8 * layer_parameters + 2 * 256 * 64 + 64, 4) * 2;
  EXPECT_EQ(m.weights * 4, whole);
  EXPECT_EQ(m.gathered, whole);
}

TEST(Memory, RecomputationSavesWhatItSays) {
  config::RunFile run = tests::sample_run(1, 2, 1, 1, 4);
  const int64_t all = memory(run).stages[0].activations;
  run.parallel.recompute = {"norm", "swiglu"};
  EXPECT_EQ(all - memory(run).stages[0].activations, 2 * 4 * (2 * 16 * 64 + 16 * 96) * 2);
  run.parallel.recompute = {"full"};
  const StageMemory full = memory(run).stages[0];
  EXPECT_EQ(full.activations, 2 * (4 * 16 * 64 * 2 + 16 * 8));
  // One layer at a time comes back in backward.
  EXPECT_GT(full.workspace, memory(tests::sample_run(1, 2, 1, 1, 4)).stages[0].workspace);
}

// Another architecture, or what other software does with memory.
void make_other(config::RunFile& run, int i) {
  config::SoftwareConfig& s = run.software;
  if (i % 2 == 0) s.attention = config::AttentionKernel::scores;
  if (i % 4 < 2) s.cross_entropy = config::CrossEntropy::unfused;
  s.recompute_early_stop = i % 8 < 4;
  if (i % 3 == 0) return;
  run.model.architecture = config::Architecture::gpt;
  run.model.positions = run.train.sequence;
  s.dropout = i % 3 == 1;
}

TEST(Memory, OnlyLlamaHasRotaryAngles) {
  config::RunFile run = tests::sample_run(1, 1, 1, 1, 1);
  const model::ShardShape llama = model::shard_shape(run);
  run.model.architecture = config::Architecture::gpt;
  const model::ShardShape gpt = model::shard_shape(run);
  EXPECT_EQ(table_bytes(run, llama, 1) - table_bytes(run, gpt, 1), 16 * 8 * 4);
}

// Before and after a pass the walk through its tensors agrees with what the model says is held.
TEST(PassMemory, ChangesAreTheActivationsAndStashes) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    config::RunFile run = tests::draw_run(random);
    const char* const choices[] = {"", "norm", "swiglu", "attention", "full"};
    if (const char* again = choices[i % 5]; *again != 0) run.parallel.recompute = {again};
    run.parallel.recompute_every = 1 + i % 2;
    if (i % 3 == 0 && i % 5 != 1) run.parallel.gathered_input = config::GatheredInput::keep;
    run.train.sequence = 48 * run.parallel.tp;
    if (i >= 150) make_other(run, i);
    SCOPED_TRACE(tests::describe(run) + " " + choices[i % 5]);
    const parallel::Layout layout(run);
    const model::ShardShape& s = layout.shape();
    for (int stage = 0; stage < layout.stages(); ++stage) {
      for (int chunk = 0; chunk < layout.virtual_stages(); ++chunk) {
        const model::ChunkContent& content = layout.chunk(stage, chunk);
        const model::Recompute& recompute = layout.layers().recompute;
        const int64_t kept = model::chunk_activation_bytes(s, recompute, content);
        const int64_t stash = model::chunk_stash_bytes(s, recompute, content);
        const int64_t before = content.embedding ? 0 : model::boundary_bytes(s);
        const int64_t after = content.head ? 0 : model::boundary_bytes(s);
        const auto change = [&](parallel::ActionKind pass) {
          const PassMemory memory = pass_memory(layout, stage, pass, chunk);
          EXPECT_GE(memory.peak, std::max<int64_t>(memory.change, 0));
          return memory.change;
        };
        EXPECT_EQ(change(parallel::ActionKind::forward), kept - before + after);
        EXPECT_EQ(change(parallel::ActionKind::backward), -kept - after + before);
        EXPECT_EQ(change(parallel::ActionKind::backward_input), stash - kept - after + before);
        EXPECT_EQ(change(parallel::ActionKind::backward_weight), -stash);
      }
    }
  }
}

TEST(PassMemory, OneLayerByHand) {
  config::RunFile run = tests::sample_run(1, 8, 1, 1, 8);  // a layer a stage
  const int64_t hidden = 16 * 64 * 2, ffn = 16 * 96 * 2;
  const auto peak = [&](parallel::ActionKind pass) {
    return pass_memory(parallel::Layout(run), 3, pass, 0).peak;
  };
  const int64_t kept = model::layer_activation_bytes(parallel::Layout(run).shape(), {});
  // All that is kept, the down product's output and its sum with the residual.
  EXPECT_EQ(peak(parallel::ActionKind::forward), kept + hidden);
  // Gradients of the down product's input, of gate and up, before gate and up can go.
  EXPECT_EQ(peak(parallel::ActionKind::backward_input), 3 * ffn);
  // The gradient of gate and up in bf16, after the down product's stash is freed; in fp32 it is added at
  // once.
  EXPECT_EQ(peak(parallel::ActionKind::backward_weight), 2 * 64 * 96 * 2 - hidden - ffn);
  run.train.dtype = config::Dtype::fp32;
  EXPECT_EQ(peak(parallel::ActionKind::backward_weight), 0);
}

// All keys and values, and their gradients in fp32, are there at once.
TEST(PassMemory, ContextParallelGathersKeysAndValues) {
  config::RunFile run = tests::sample_run(1, 8, 1, 1, 8);
  run.model.ffn = 2;
  run.train.sequence = 4096;
  run.parallel.cp = 8;
  const int64_t tokens = 512, kv_width = 2 * 32, qkv = tokens * (64 + kv_width) * 2;
  const int64_t backward =
      pass_memory(parallel::Layout(run), 3, parallel::ActionKind::backward_input, 0).peak;
  EXPECT_GE(backward, 4096 * kv_width * (2 + 4) + qkv);
  EXPECT_LE(backward, 4096 * kv_width * (2 + 4) + qkv + 4 * tokens * 64 * 2);
}

int64_t total(const config::RunFile& run) { return memory(run).fullest().tensors(); }
Traffic traffic(const config::RunFile& run) {
  const parallel::Layout layout(run);
  return traffic_of(layout, parallel::build_step_programs(layout).front());
}

// Interleaved, so that gradients and gathered parameters of a chunk are a part of the stage's.
config::RunFile sharded_run(int64_t zero, int64_t micro_batches) {
  config::RunFile run = tests::sample_run(2, 2, 4, 8, micro_batches);
  run.model.layers = 16;
  run.model.hidden = 512;
  run.model.ffn = 1024;
  run.parallel.zero = zero;
  return run;
}

TEST(Memory, EachZeroStageHoldsLess) {
  for (int64_t zero = 1; zero <= 3; ++zero) {
    // One group of micro-batches: a chunk's gradients can go before the next chunk's come.
    EXPECT_LT(total(sharded_run(zero, 2)), total(sharded_run(zero - 1, 2))) << zero;
    // Several: scattered once a chunk, gradients of all chunks are there until the last group.
    EXPECT_LE(total(sharded_run(zero, 8)), total(sharded_run(zero - 1, 8))) << zero;
  }
  EXPECT_EQ(total(sharded_run(2, 8)), total(sharded_run(1, 8)));
  EXPECT_GT(traffic(sharded_run(3, 8)).dp, traffic(sharded_run(2, 8)).dp);  // gathers forth and back
  const StageMemory three = memory(sharded_run(3, 8)).fullest();
  const parallel::Layout layout(sharded_run(3, 8));
  int64_t shards = 0, largest = 0;
  for (int c = 0; c < 8; ++c) {
    shards += layout.state_elements(three.stage, c) * 2;
    largest = std::max(largest, layout.padded_chunk_elements(three.stage, c) * 2);
  }
  EXPECT_EQ(three.weights, shards);
  EXPECT_GT(three.gathered, 0);            // some chunk is there whole
  EXPECT_LE(three.gathered, 3 * largest);  // but not all
}

TEST(Memory, ScatteringEveryMicroBatchTradesTrafficForMemory) {
  for (const int64_t zero : {2, 3}) {
    config::RunFile run = sharded_run(zero, 8);
    const config::RunFile a_chunk = run;
    run.parallel.gradient_scatter = config::GradientScatter::micro_batch;
    EXPECT_LT(total(run), total(a_chunk));
    EXPECT_LT(memory(run).stages[0].gradients, memory(a_chunk).stages[0].gradients);
    EXPECT_GT(traffic(run).dp, traffic(a_chunk).dp);
    EXPECT_EQ(traffic(run).pp, traffic(a_chunk).pp);
  }
}

TEST(Memory, KeptGatheredInputsTradeMemoryForTensorParallelTraffic) {
  for (const auto schedule : {config::ScheduleKind::one_f_one_b, config::ScheduleKind::zero_bubble_h1}) {
    config::RunFile run = tests::sample_run(4, 2, 1, 1, 8);
    run.parallel.schedule = schedule;
    const config::RunFile again = run;
    run.parallel.gathered_input = config::GatheredInput::keep;
    EXPECT_GT(memory(run).stages[0].activations, memory(again).stages[0].activations);
    EXPECT_GT(total(run), total(again));
    EXPECT_LT(traffic(run).tp, traffic(again).tp);
  }
}

TEST(Memory, MoreReplicasThanRanksFreeGradientsBetweenRounds) {
  config::RunFile run = tests::sample_run(1, 1, 2, 1, 4);
  EXPECT_EQ(memory(run).stages[0].gradients, memory(run).stages[0].weights * 2);
  run.parallel.replicas = 4;
  const StageMemory m = memory(run).stages[0];
  EXPECT_EQ(m.reduced * 2, m.weights * 2);
  // A round's reduction goes on while the next one's first backward has begun.
  EXPECT_EQ(m.gradients, 2 * m.weights * 2);
}

TEST(Memory, OptimizersKeepTheMomentsTheyHave) {
  config::RunFile run = tests::sample_run(1, 1, 1, 1, 1);
  const int64_t adamw = memory(run).stages[0].optimizer;
  run.train.optimizer = config::Optimizer::sgd;
  EXPECT_EQ(memory(run).stages[0].optimizer * 3, adamw * 2);
  run.train.momentum = 0;
  EXPECT_EQ(memory(run).stages[0].optimizer * 3, adamw);
}

TEST(Memory, EveryDrawnRunHasConsistentParts) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    config::RunFile run = tests::draw_run(random);
    run.train.sequence = 48 * run.parallel.tp;
    SCOPED_TRACE(tests::describe(run));
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    for (const StageMemory& m : memory_of(layout, programs).stages) {
      const auto& program = programs[static_cast<size_t>(m.stage)];
      for (const int64_t part : {m.weights, m.gathered, m.gradients, m.optimizer, m.activations, m.logits,
                                 m.messages, m.reduced, m.workspace, m.tables}) {
        EXPECT_GE(part, 0);
      }
      EXPECT_EQ(m.total(), m.weights + m.gathered + m.gradients + m.optimizer + m.activations + m.logits +
                               m.messages + m.reduced + m.workspace + m.tables + m.margin);
      EXPECT_LE(m.activations + m.logits, parallel::peak_activation_bytes(layout, program));
      int64_t highest = 0;
      for (const MemoryMoment& moment : memory_curve(layout, program)) {
        highest = std::max(highest, moment.activations);
        EXPECT_LE(moment.activations, moment.tensors);
        EXPECT_LE(moment.tensors, m.tensors());
      }
      EXPECT_EQ(highest, parallel::peak_activation_bytes(layout, program));
      EXPECT_EQ(memory_curve(layout, program).back().activations, 0);
      int64_t least = 0;  // what is there all the time, and the most activations
      for (int c = 0; c < layout.virtual_stages(); ++c) {
        least += layout.state_elements(m.stage, c) * (2 + 4 * 3);
      }
      EXPECT_GE(m.tensors(), least + parallel::peak_activation_bytes(layout, program));
    }
  }
}

TEST(Traffic, CountsTheMessagesOfTheOps) {
  config::RunFile run = tests::sample_run(1, 4, 2, 1, 8);
  run.parallel.cp = 2;
  run.train.sequence = 32;
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  const Traffic t = traffic_of(layout, programs[1]);
  EXPECT_EQ(t.stage, 1);
  EXPECT_EQ(t.tp, 0);
  const int64_t boundary = 16 * 64 * 2, norm = 3 * 8;
  EXPECT_EQ(t.pp, 8 * 2 * boundary + norm);
  // Two layers: keys and values of 32 tokens in bf16 forward and again backward, their gradients in fp32.
  EXPECT_EQ(t.cp, 8 * 2 * 32 * 64 * (2 + 2 + 4));
  const int64_t elements = layout.padded_chunk_elements(1, 0);
  EXPECT_EQ(t.dp, elements * (4 + 2) + parallel::norm_numbers(layout, 1) * 8);
}

TEST(Memory, TrainingStateAsPublishedAndAsHeld) {
  // 405e9 parameters: 6.48 TB; the exact count: 6.49 TB.
  config::TrainConfig train;
  EXPECT_NEAR(training_state(405e9, train).published, 6.48e12, 1);
  const TrainingState exact = training_state(405853388800.0, train);
  EXPECT_NEAR(exact.published / 1e12, 6.49, 0.005);
  EXPECT_NEAR(exact.own, 18 * 405853388800.0, 1);
  train.dtype = config::Dtype::fp64;
  EXPECT_EQ(training_state(1, train).own, 8 + 8 + 24);
  train.optimizer = config::Optimizer::sgd;
  EXPECT_EQ(training_state(1, train).own, 8 + 8 + 16);
}

TEST(Memory, TheLargeRunFits) {
  const config::RunFile run = config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", {});
  const MemoryReport report = memory(run);
  ASSERT_EQ(report.stages.size(), 16u);
  EXPECT_TRUE(report.fits());
  EXPECT_EQ(report.capacity, 80000000000);
  const StageMemory& full = report.fullest();
  EXPECT_NEAR(static_cast<double>(full.total()), 69.5e9, 1.5e9);
  // By hand, of stage 1: eight chunks of one layer.
  const int64_t layer = (2 * 16384LL * 16384 + 2 * 1024LL * 16384 + 3 * 16384LL * 53248) / 8 + 2 * 16384;
  EXPECT_EQ(report.stages[1].weights, 8 * padded(layer, 128) * 2);
  EXPECT_EQ(report.stages[1].gradients, 8 * padded(layer, 128) * 4);
  EXPECT_EQ(report.stages[1].optimizer, 8 * padded(layer, 128) / 128 * 12);
  EXPECT_EQ(report.stages[1].reduced, 8 * padded(layer, 128) / 128 * 4);
  const int64_t kept =
      (2 * 1024LL * 16384 + 8192LL * (16 + 2) * 128 + 8192LL * 2048 + 2 * 8192LL * 6656) * 2 +
      8192LL * 16 * 4;
  EXPECT_EQ(report.stages[1].activations, 128 * kept);
  // Without recomputation, or with more kept, it would not.
  config::RunFile none = run;
  none.parallel.recompute = {};
  EXPECT_FALSE(memory(none).fits());
}

TEST(Memory, JsonGivesTheFullestRankAndEveryStage) {
  const MemoryReport report = memory(tests::sample_run(1, 4, 1, 1, 8));
  const Json json = memory_json(report);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"weights_bytes", "gradients_bytes", "optimizer_bytes",
                                      "activations_bytes", "other_bytes", "total_bytes", "tensors_bytes",
                                      "parts_bytes", "capacity_bytes", "fits", "stages"}));
  EXPECT_EQ(json["stages"].size(), 4u);
  int64_t most = 0;
  for (const Json& stage : json["stages"]) most = std::max(most, stage["total_bytes"].get<int64_t>());
  EXPECT_EQ(json["total_bytes"], most);
  EXPECT_EQ(json["weights_bytes"].get<int64_t>() + json["gradients_bytes"].get<int64_t>() +
                json["optimizer_bytes"].get<int64_t>() + json["activations_bytes"].get<int64_t>() +
                json["other_bytes"].get<int64_t>(),
            most);
  EXPECT_EQ(json["tensors_bytes"], most - report.fullest().margin);
  for (size_t s = 0; s < 4; ++s) EXPECT_EQ(json["stages"][s]["tensors_bytes"], report.stages[s].tensors());
}

}  // namespace
}  // namespace lockstep::plan
