// The ops of layers and chunks, their FLOPs and bytes, and the bytes that are held between passes.
#include "model/layer_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "llama_sizes.hpp"

namespace lockstep::model {
namespace {

config::RunFile run_405b() {
  config::RunFile run;
  run.model = llama(126, 16384, 53248, 128);
  run.parallel.tp = 8;
  run.train.sequence = 8192;
  return run;
}

double total_flops(const std::vector<Op>& ops) {
  double sum = 0;
  for (const Op& op : ops) sum += op.flops;
  return sum;
}

int count(const std::vector<Op>& ops, OpKind kind) {
  return static_cast<int>(
      std::count_if(ops.begin(), ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

// The program's FLOPs must be those that the formula for MFU counts: 2 N + causal attention forward, twice
// that backward (and one more product over the scores, which flash attention computes again).
TEST(LayerProgram, FlopsAgreeWithTheFormula) {
  const config::RunFile run = run_405b();
  const LayerProgram program{shard_shape(run), {}};
  const double tokens = 8192;
  const double products = 126 * 2.0 * (16384.0 * (16384 + 2 * 1024) + 16384.0 * 16384 + 3.0 * 16384 * 53248) +
                          2.0 * 16384 * 128256;
  const double attention = 126 * 2.0 * 16384 * 8192;  // 2 products x 2 S H, causal half
  const ChunkContent all{0, 126, true, true};
  EXPECT_NEAR(total_flops(program.chunk_forward(all)) * 8 / (tokens * (products + attention)), 1, 1e-12);
  EXPECT_NEAR(total_flops(program.chunk_backward(all)) * 8 / (tokens * (2 * products + 2.5 * attention)), 1,
              1e-12);
  EXPECT_NEAR(flops_per_token(run.model, 8192, true) / (3 * (products + attention)), 1, 1e-12);
}

TEST(LayerProgram, TwoAllReducesALayerEachWayWithoutSequenceParallel) {
  config::RunFile run = run_405b();
  run.parallel.sequence_parallel = false;
  const LayerProgram plain{shard_shape(run), {}};
  EXPECT_EQ(count(plain.layer_forward(), OpKind::all_reduce), 2);
  EXPECT_EQ(count(plain.layer_backward_input({}), OpKind::all_reduce), 2);
  EXPECT_EQ(count(plain.layer_backward_weight({}), OpKind::all_reduce), 0);

  run.parallel.sequence_parallel = true;
  const LayerProgram sharded{shard_shape(run), {}};
  EXPECT_EQ(count(sharded.layer_forward(), OpKind::all_reduce), 0);
  EXPECT_EQ(count(sharded.layer_forward(), OpKind::all_gather), 2);
  EXPECT_EQ(count(sharded.layer_forward(), OpKind::reduce_scatter), 2);
}

TEST(LayerProgram, RecomputeTradesMemoryForOps) {
  const ShardShape s = shard_shape(run_405b());
  const LayerProgram none{s, {}};
  const size_t plain = none.layer_backward_input({}).size() + none.layer_backward_weight({}).size();
  const auto ops_with = [&](Recompute r) {
    return none.layer_backward_input(r).size() + none.layer_backward_weight(r).size();
  };
  EXPECT_EQ(ops_with({.norm = true}), plain + 2);
  EXPECT_EQ(ops_with({.activation = true}), plain + 1);
  EXPECT_EQ(ops_with({.attention = true}), plain + 1);
  EXPECT_EQ(ops_with({.full = true}), plain + none.layer_recompute().size());
  // bytes: T H / tp for each norm's output, T F / tp, and the whole layer but its input
  const int64_t th = 8192 * 16384 * 2 / 8;
  EXPECT_EQ(layer_activation_bytes(s, {}) - layer_activation_bytes(s, {.norm = true}), 2 * th);
  EXPECT_EQ(layer_activation_bytes(s, {}) - layer_activation_bytes(s, {.activation = true}),
            8192 * 53248 * 2 / 8);
  EXPECT_EQ(layer_activation_bytes(s, {.full = true}), th);
}

// Every operand and result counts, what is added to twice. Counted by hand: 8 tokens (4 a rank) of width 4,
// 8 of 16 vocabulary rows a rank, bf16 with fp32 gradients and statistics.
TEST(LayerProgram, BytesCountEveryOperand) {
  config::RunFile run;
  run.model.hidden = 4;
  run.model.heads = run.model.kv_heads = 2;
  run.model.ffn = 4;
  run.model.vocab = 16;
  run.parallel.tp = 2;
  run.train.sequence = 8;
  const LayerProgram program{shard_shape(run), {}};
  const auto bytes = [](const std::vector<Op>& ops, std::string_view name) {
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const Op& o) { return o.name == name; });
    return op == ops.end() ? -1 : op->bytes;
  };
  // ids; rows of 4 of the 8 tokens; all 8 written
  EXPECT_EQ(bytes(program.embedding_forward(), "embedding"), 8 * 8 + 4 * 8 + 8 * 8);
  // ids; gradients of 8 tokens; 4 fp32 rows added to
  EXPECT_EQ(bytes(program.embedding_backward(), "embedding_wgrad"), 8 * 8 + 8 * 8 + 2 * 4 * 16);
  // logits, targets, maxima; sums and targets' logits
  EXPECT_EQ(bytes(program.head_forward(), "loss_sum"), 8 * 16 + 8 * 8 + 8 * 4 + 2 * 8 * 4);
  // input, gradient, result; weight; the weight's gradient added to
  EXPECT_EQ(bytes(program.head_backward_input(), "final_norm_backward"), 3 * 4 * 8 + 8 + 2 * 16);
  EXPECT_EQ(bytes(program.layer_backward_input({}), "ffn_norm_backward"), 4 * 4 * 8 + 8 + 2 * 16);
}

// The same run cut by context parallel, counted by hand: 8 tokens in chunks of 2 for cp 2; a rank has 4 of
// them, two heads of width 2, so keys and values are 8 wide.
config::RunFile run_cut() {
  config::RunFile run;
  run.model.hidden = 4;
  run.model.heads = run.model.kv_heads = 2;
  run.model.ffn = 4;
  run.model.vocab = 16;
  run.parallel.cp = 2;
  run.train.sequence = 8;
  return run;
}

const Op& find(const std::vector<Op>& ops, std::string_view name) {
  const auto op = std::find_if(ops.begin(), ops.end(), [&](const Op& o) { return o.name == name; });
  if (op == ops.end()) throw std::runtime_error("no op " + std::string(name));
  return *op;
}

std::vector<std::string_view> names(const std::vector<Op>& ops) {
  std::vector<std::string_view> result;
  for (const Op& op : ops) result.push_back(op.name);
  return result;
}

TEST(LayerProgram, ContextParallelGathersKeysAndScattersTheirGradients) {
  const LayerProgram program{shard_shape(run_cut()), {}};
  const std::vector<Op> forward = program.layer_forward(), backward = program.layer_backward_input({});
  EXPECT_EQ(find(forward, "kv_pack").bytes, 2 * 4 * 8 * 2);
  EXPECT_EQ(find(forward, "cp_all_gather").bytes, 8 * 8 * 2);
  EXPECT_EQ(find(forward, "cp_all_gather").axis, Axis::cp);
  EXPECT_EQ(find(forward, "cp_all_gather").stream, Stream::cp);
  EXPECT_EQ(find(forward, "cp_all_gather").kind, OpKind::all_gather);
  // queries, all keys and values, output; statistics of 2 heads
  EXPECT_EQ(find(forward, "attention").bytes, (4 * 4 + 8 * 8 + 4 * 4) * 2 + 4 * 2 * 4);
  // beside those: two outputs' gradients, the queries' gradient, and that of all keys and values in fp32
  EXPECT_EQ(find(backward, "attention_backward").bytes, (4 * 4 * 4 + 8 * 8) * 2 + 8 * 8 * 4 + 4 * 2 * 4);
  EXPECT_EQ(find(backward, "cp_reduce_scatter").bytes, 8 * 8 * 4);
  EXPECT_EQ(find(backward, "cp_reduce_scatter").axis, Axis::cp);
  EXPECT_EQ(find(backward, "kv_unpack").bytes, 4 * 8 * (4 + 2));

  config::RunFile whole = run_cut();
  whole.parallel.cp = 1;
  const LayerProgram uncut{shard_shape(whole), {}};
  for (const std::vector<Op>& ops : {uncut.layer_forward(), uncut.layer_backward_input({})}) {
    for (const Op& op : ops) EXPECT_NE(op.axis, Axis::cp) << op.name;
  }
  EXPECT_DOUBLE_EQ(find(uncut.layer_forward(), "attention").flops, 2 * find(forward, "attention").flops);
  EXPECT_EQ(names(uncut.layer_forward()).size() + 2, forward.size());
}

// Gathered again for backward, but for full recomputation, which has just gathered them.
TEST(LayerProgram, KeysAreGatheredOnceMoreInBackward) {
  const LayerProgram program{shard_shape(run_cut()), {}};
  const auto gathers = [&](const Recompute& r) {
    return count(program.layer_backward_input(r), OpKind::all_gather);
  };
  EXPECT_EQ(gathers({}), 1);
  EXPECT_EQ(gathers({.attention = true}), 1);
  EXPECT_EQ(gathers({.full = true}), 1);
}

TEST(LayerProgram, SwigluIsComputedAgainBeforeItsInputGoes) {
  const LayerProgram program{shard_shape(run_cut()), {}};
  const auto ops = names(program.layer_backward_input({.activation = true, .attention = true}));
  const auto place = [&](std::string_view name) {
    return std::find(ops.begin(), ops.end(), name) - ops.begin();
  };
  EXPECT_EQ(place("swiglu") + 1, place("swiglu_backward"));
  EXPECT_EQ(place("cp_all_gather") + 1, place("attention"));
  EXPECT_EQ(place("attention") + 1, place("attention_backward"));
}

TEST(LayerProgram, FullRecomputationLeavesOutTheDownProduct) {
  const LayerProgram program{shard_shape(run_405b()), {}};
  std::vector<Op> forward = program.layer_forward();
  forward.resize(forward.size() - 3);  // down_gemm, its reduction, the residual
  EXPECT_EQ(program.layer_recompute(), forward);
}

TEST(LayerProgram, KeptGatheredInputsCostBytesAndSaveGathers) {
  config::RunFile run = run_405b();
  const ShardShape again = shard_shape(run);
  run.parallel.gathered_input = config::GatheredInput::keep;
  const ShardShape kept = shard_shape(run);
  const LayerProgram a{again, {}}, k{kept, {}};
  EXPECT_EQ(count(a.layer_backward_weight({}), OpKind::all_gather), 2);
  EXPECT_EQ(count(k.layer_backward_weight({}), OpKind::all_gather), 0);
  EXPECT_EQ(count(a.head_backward_weight(), OpKind::all_gather), 1);
  EXPECT_EQ(count(k.head_backward_weight(), OpKind::all_gather), 0);
  // Two norms' outputs (and the head's), whole instead of an eighth.
  const int64_t more = 2 * (8192 - 1024) * int64_t{16384} * 2;
  EXPECT_EQ(layer_activation_bytes(kept, {}) - layer_activation_bytes(again, {}), more);
  EXPECT_EQ(layer_stash_bytes(kept, {}) - layer_stash_bytes(again, {}), more);
  const ChunkContent head{126, 0, false, true};
  EXPECT_EQ(chunk_activation_bytes(kept, {}, head) - chunk_activation_bytes(again, {}, head), more / 2);
  EXPECT_EQ(chunk_stash_bytes(kept, {}, head) - chunk_stash_bytes(again, {}, head), more / 2);
}

// By hand, bf16, one rank: 8 tokens, width 4; qkv 12, attention output 4, gate and up 8, swiglu 4.
TEST(LayerProgram, StashHoldsInputsAndOutputGradients) {
  config::RunFile run = run_cut();
  run.parallel.cp = 1;
  const ShardShape s = shard_shape(run);
  const int64_t inputs = 4 + 4 + 4 + 4, gradients = 12 + 4 + 8 + 4;
  EXPECT_EQ(layer_stash_bytes(s, {}), 8 * (inputs + gradients) * 2);
  for (const Recompute& r :
       {Recompute{.norm = true}, Recompute{.activation = true}, Recompute{.full = true}}) {
    EXPECT_EQ(layer_stash_bytes(s, r), layer_stash_bytes(s, {}));  // by then all of them are there again
  }
  EXPECT_EQ(chunk_stash_bytes(s, {}, {0, 2, true, true}),
            2 * layer_stash_bytes(s, {}) + 8 * (8 + 4 * 2) + 8 * (4 + 16) * 2);
}

TEST(LayerProgram, EveryKthLayerOfTheModelRecomputes) {
  const Recompute r{.full = true, .every = 3};
  EXPECT_TRUE(r.at(0).full);
  EXPECT_FALSE(r.at(1).full);
  EXPECT_FALSE(r.at(2).full);
  EXPECT_TRUE(r.at(3).full);

  const ShardShape s = shard_shape(run_405b());
  const LayerProgram program{s, r};
  const ChunkContent content{2, 3, false, false};  // layers 2, 3, 4: one recomputes
  EXPECT_EQ(chunk_activation_bytes(s, r, content),
            2 * layer_activation_bytes(s, {}) + layer_activation_bytes(s, {.full = true}));
  // From the last layer: 4 does not, 3 does.
  const std::vector<Op> ops = program.chunk_backward_input(content);
  const size_t plain = program.layer_backward_input({}).size();
  EXPECT_EQ(ops.size(), 3 * plain + program.layer_recompute().size());
  EXPECT_EQ(ops[plain].name, "attention_norm");

  config::RunFile run = run_405b();
  run.parallel.recompute = {"norm", "attention"};
  run.parallel.recompute_every = 4;
  EXPECT_EQ(recompute_of(run.parallel), (Recompute{.norm = true, .attention = true, .every = 4}));
}

// The two halves of a zero-bubble backward are the fused backward, in another order.
TEST(LayerProgram, HalvesOfBackwardAreTheWhole) {
  const LayerProgram program{shard_shape(run_405b()), {.activation = true, .every = 2}};
  const ChunkContent content{0, 3, true, true};
  const auto sorted = [](std::vector<Op> ops) {
    std::sort(ops.begin(), ops.end(), [](const Op& a, const Op& b) {
      return std::tie(a.name, a.bytes, a.beside_product) < std::tie(b.name, b.bytes, b.beside_product);
    });
    return ops;
  };
  std::vector<Op> halves = program.chunk_backward_input(content);
  const std::vector<Op> weight = program.chunk_backward_weight(content);
  halves.insert(halves.end(), weight.begin(), weight.end());
  EXPECT_EQ(sorted(halves), sorted(program.chunk_backward(content)));
  EXPECT_EQ(weight.back().name, "embedding_wgrad");
}

// Context parallel shares the causal work equally; so it does the FLOPs.
TEST(LayerProgram, ContextParallelHalvesFlops) {
  config::RunFile run = run_405b();
  const LayerProgram one{shard_shape(run), {}};
  run.parallel.cp = 2;
  const LayerProgram two{shard_shape(run), {}};
  const ChunkContent all{0, 2, true, true};
  EXPECT_DOUBLE_EQ(total_flops(one.chunk_forward(all)), 2 * total_flops(two.chunk_forward(all)));
  EXPECT_DOUBLE_EQ(total_flops(one.chunk_backward(all)), 2 * total_flops(two.chunk_backward(all)));
}

}  // namespace
}  // namespace lockstep::model
