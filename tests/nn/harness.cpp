#include "harness.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <numeric>
#include <thread>

#include "comm/local_world.hpp"
#include "nn/threads.hpp"

namespace lockstep::nn::test {

model::ShardShape Case::shape() const {
  config::RunFile run;
  run.model.hidden = hidden();
  run.model.ffn = ffn;
  run.model.heads = heads;
  run.model.kv_heads = kv_heads;
  run.model.vocab = vocab;
  run.parallel.tp = tp;
  run.parallel.micro_batch = micro_batch;
  run.parallel.sequence_parallel = sequence_parallel;
  run.train.sequence = sequence;
  run.train.dtype = dtype;
  return model::shard_shape(run);
}

double Case::tolerance() const {
  switch (dtype) {
    case config::Dtype::bf16:
      return 2e-2;
    case config::Dtype::fp32:
      return 1e-5;
    case config::Dtype::fp64:
      return 1e-10;
  }
  return 0;
}

std::string describe(const Case& c) {
  return "micro_batch " + std::to_string(c.micro_batch) + " sequence " + std::to_string(c.sequence) +
         " heads " + std::to_string(c.heads) + " kv_heads " + std::to_string(c.kv_heads) + " head_dim " +
         std::to_string(c.head_dim) + " ffn " + std::to_string(c.ffn) + " vocab " + std::to_string(c.vocab) +
         " tp " + std::to_string(c.tp) + (c.sequence_parallel ? " sp " : " ") +
         at::toString(scalar_type(c.dtype));
}

std::vector<Case> all_cases() {
  const std::vector<Case> shapes = {
      {.micro_batch = 1, .sequence = 8},
      {.micro_batch = 3, .sequence = 7, .heads = 4, .kv_heads = 4, .head_dim = 6, .ffn = 20, .vocab = 12},
      {.micro_batch = 4, .sequence = 9, .heads = 8, .kv_heads = 4, .head_dim = 2, .ffn = 36, .vocab = 40},
      {.micro_batch = 2, .sequence = 130, .heads = 8, .kv_heads = 4, .head_dim = 16, .ffn = 64, .vocab = 256},
      {.micro_batch = 1, .sequence = 51, .heads = 4, .kv_heads = 1, .head_dim = 32, .ffn = 28, .vocab = 20},
  };
  std::vector<Case> cases;
  for (Case c : shapes) {
    for (const int64_t tp : {1, 2, 4}) {
      if (c.kv_heads % tp != 0) continue;
      for (const bool sequence_parallel : {false, true}) {
        if (sequence_parallel && (tp == 1 || c.tokens() % tp != 0)) continue;
        for (const auto dtype : {config::Dtype::fp64, config::Dtype::fp32, config::Dtype::bf16}) {
          c.tp = tp;
          c.sequence_parallel = sequence_parallel;
          c.dtype = dtype;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

void run_ranks(const Case& c, const std::function<void(Context&, OpLog&)>& body) {
  compute_on_one_thread();
  const int ranks = static_cast<int>(c.tp);
  const auto arena = comm::SharedArena::create(ranks);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const at::NoGradGuard no_grad;
        comm::LocalWorld world(arena, rank);
        std::vector<int> everyone(static_cast<size_t>(ranks));
        std::iota(everyone.begin(), everyone.end(), 0);
        const auto tp = ranks > 1 ? world.group("tp", everyone) : nullptr;
        OpLog log;
        Context ctx = make_context(c.shape(), c.dtype, rope_theta, norm_eps, tp.get(), &log);
        body(ctx, log);
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
        arena->mark_dead(rank, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

at::Tensor random_tensor(const Case& c, at::IntArrayRef sizes, double scale, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  return (at::randn(sizes, generator, at::kDouble) * scale).to(scalar_type(c.dtype)).to(at::kDouble);
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  const double norm = expected.to(at::kDouble).norm().item<double>();
  EXPECT_GT(norm, 0) << "a reference of zeros proves nothing";
  const double error = (actual.to(at::kDouble) - expected.to(at::kDouble)).norm().item<double>() / norm;
  EXPECT_TRUE(std::isfinite(error));
  return error;
}

at::Tensor shard_rows(const at::Tensor& whole, int64_t parts, int64_t rank) {
  return whole.chunk(parts, 0)[static_cast<size_t>(rank)].clone();
}

namespace {

at::Tensor shard_columns(const at::Tensor& whole, int64_t parts, int64_t rank) {
  return whole.chunk(parts, 1)[static_cast<size_t>(rank)].contiguous().clone();
}

// Each of the stacked matrices is cut by rows.
at::Tensor shard_pieces(const at::Tensor& whole, at::IntArrayRef rows, int64_t parts, int64_t rank) {
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& piece : whole.split_with_sizes(rows))
    pieces.push_back(shard_rows(piece, parts, rank));
  return at::cat(pieces);
}

at::Tensor join_pieces(const std::vector<at::Tensor>& parts, at::IntArrayRef rows) {
  std::vector<int64_t> part_rows;
  for (const int64_t r : rows) part_rows.push_back(r / static_cast<int64_t>(parts.size()));
  std::vector<at::Tensor> pieces;
  for (size_t piece = 0; piece < rows.size(); ++piece) {
    for (const at::Tensor& part : parts) pieces.push_back(part.split_with_sizes(part_rows)[piece]);
  }
  return at::cat(pieces);
}

std::vector<int64_t> qkv_rows(const Case& c) {
  return {c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim};
}

}  // namespace

LayerTensors shard(const Case& c, const LayerTensors& whole, int64_t rank) {
  return {whole.attention_norm.clone(),
          shard_pieces(whole.qkv, qkv_rows(c), c.tp, rank),
          shard_columns(whole.attention_out, c.tp, rank),
          whole.ffn_norm.clone(),
          shard_pieces(whole.gate_up, {c.ffn, c.ffn}, c.tp, rank),
          shard_columns(whole.down, c.tp, rank)};
}

LayerTensors join(const Case& c, const std::vector<LayerTensors>& parts) {
  const auto all = [&](at::Tensor LayerTensors::*member) {
    std::vector<at::Tensor> tensors;
    for (const LayerTensors& part : parts) tensors.push_back(part.*member);
    return tensors;
  };
  return {join_norm_gradients(c, all(&LayerTensors::attention_norm)),
          join_pieces(all(&LayerTensors::qkv), qkv_rows(c)),
          at::cat(all(&LayerTensors::attention_out), 1),
          join_norm_gradients(c, all(&LayerTensors::ffn_norm)),
          join_pieces(all(&LayerTensors::gate_up), {c.ffn, c.ffn}),
          at::cat(all(&LayerTensors::down), 1)};
}

at::Tensor shard_tokens(const Case& c, const at::Tensor& whole, int64_t rank) {
  return c.sequence_parallel ? shard_rows(whole, c.tp, rank) : whole.clone();
}

at::Tensor join_tokens(const Case& c, const std::vector<at::Tensor>& parts) {
  if (c.sequence_parallel) return at::cat(parts);
  for (const at::Tensor& part : parts) EXPECT_TRUE(at::equal(part, parts[0])) << "ranks differ";
  return parts[0];
}

at::Tensor join_norm_gradients(const Case& c, const std::vector<at::Tensor>& parts) {
  if (c.sequence_parallel) return at::stack(parts).sum(0);
  for (const at::Tensor& part : parts) EXPECT_TRUE(at::equal(part, parts[0])) << "ranks differ";
  return parts[0];
}

LayerTensors map(const LayerTensors& t, const std::function<at::Tensor(const at::Tensor&)>& f) {
  return {f(t.attention_norm), f(t.qkv), f(t.attention_out), f(t.ffn_norm), f(t.gate_up), f(t.down)};
}

}  // namespace lockstep::nn::test
