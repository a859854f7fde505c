#include "harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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
  run.parallel.cp = cp;
  if (keep_gathered) run.parallel.gathered_input = config::GatheredInput::keep;
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
      return 1e-12;
  }
  return 0;
}

std::string describe(const Case& c) {
  return "micro_batch " + std::to_string(c.micro_batch) + " sequence " + std::to_string(c.sequence) +
         " heads " + std::to_string(c.heads) + " kv_heads " + std::to_string(c.kv_heads) + " head_dim " +
         std::to_string(c.head_dim) + " ffn " + std::to_string(c.ffn) + " vocab " + std::to_string(c.vocab) +
         " tp " + std::to_string(c.tp) + " cp " + std::to_string(c.cp) +
         (c.sequence_parallel ? " sp " : " ") + (c.keep_gathered ? "keep " : "") +
         (c.documents.empty() ? "" : "documents ") + at::toString(scalar_type(c.dtype));
}

std::string describe(const model::Recompute& r) {
  return std::string(r.norm ? " norm" : "") + (r.activation ? " swiglu" : "") +
         (r.attention ? " attention" : "") + (r.full ? " full" : "") + " every " + std::to_string(r.every);
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

namespace {

constexpr config::Dtype all_dtypes[] = {config::Dtype::fp64, config::Dtype::fp32, config::Dtype::bf16};

}  // namespace

std::vector<Case> cut_cases() {
  const std::vector<Case> shapes = {
      {.micro_batch = 1, .sequence = 16, .documents = {{0, 1, 7}}},
      {.micro_batch = 3,
       .sequence = 96,
       .heads = 8,
       .kv_heads = 4,
       .head_dim = 6,
       .documents = {{0, 24, 25, 26, 50, 95}, {0}, {0, 12, 48, 72}}},
      {.micro_batch = 1, .sequence = 256, .head_dim = 16, .documents = {{0, 3, 64, 130, 200}}},
  };
  std::vector<Case> cases;
  for (Case c : shapes) {
    const auto documents = c.documents;
    for (const int64_t cp : {2, 4}) {
      for (const int64_t tp : {1, 2}) {
        for (const bool sequence_parallel : {false, true}) {
          if (sequence_parallel && tp == 1) continue;
          for (const bool masked : {false, true}) {
            for (const auto dtype : all_dtypes) {
              c.cp = cp;
              c.tp = tp;
              c.sequence_parallel = sequence_parallel;
              c.documents = masked ? documents : decltype(documents){};
              c.dtype = dtype;
              cases.push_back(c);
            }
          }
        }
      }
    }
  }
  return cases;
}

std::vector<Case> masked_cases() {
  std::vector<Case> cases;
  for (const auto dtype : all_dtypes) {
    cases.push_back({.micro_batch = 2, .sequence = 9, .documents = {{0, 4, 5, 8}, {0, 1}}, .dtype = dtype});
    cases.push_back({.micro_batch = 3,
                     .sequence = 150,
                     .head_dim = 6,
                     .tp = 2,
                     .documents = {{0, 16, 48, 49, 97, 149}, {0}, {0, 5, 47, 95}},
                     .dtype = dtype});
    Case single{.micro_batch = 1, .sequence = 60, .documents = {{}}, .dtype = dtype};
    for (int64_t i = 0; i < single.sequence; ++i) single.documents[0].push_back(i);
    cases.push_back(single);  // every token its own document
  }
  return cases;
}

size_t rank_of(const Context& ctx) {
  return static_cast<size_t>(ctx.cp_rank() * ctx.shape.tp + ctx.tp_rank());
}

void run_ranks(const Case& c, const std::function<void(Context&, OpLog&)>& body) {
  compute_on_one_thread();
  const int ranks = static_cast<int>(c.ranks()), tp_size = static_cast<int>(c.tp);
  const auto arena = comm::SharedArena::create(ranks);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const at::NoGradGuard no_grad;
        comm::LocalWorld world(arena, rank);
        std::vector<int> tp_ranks(static_cast<size_t>(c.tp)), cp_ranks(static_cast<size_t>(c.cp));
        std::iota(tp_ranks.begin(), tp_ranks.end(), rank - rank % tp_size);
        for (int i = 0; i < static_cast<int>(c.cp); ++i) {
          cp_ranks[static_cast<size_t>(i)] = rank % tp_size + tp_size * i;
        }
        const auto tp = c.tp > 1 ? world.group("tp", tp_ranks) : nullptr;
        const auto cp = c.cp > 1 ? world.group("cp", cp_ranks) : nullptr;
        OpLog log;
        Context ctx = make_context(c.shape(), c.dtype, rope_theta, norm_eps, tp.get(), cp.get(), &log);
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

namespace {

at::Tensor shard_columns(const at::Tensor& whole, int64_t parts, int64_t rank) {
  return whole.chunk(parts, 1)[static_cast<size_t>(rank)].contiguous().clone();
}

// A matrix of stacked pieces: rows of each, and into how many parts tensor parallel cuts them. A piece of
// fewer parts than ranks lies on neighbouring ranks in copies.
struct Piece {
  int64_t rows, parts;
};
using Pieces = std::vector<Piece>;

Pieces qkv_pieces(const Case& c) {
  const Piece kv{c.kv_heads * c.head_dim, std::min(c.tp, c.kv_heads)};
  return {{c.heads * c.head_dim, c.tp}, kv, kv};
}
Pieces gate_up_pieces(const Case& c) { return {{c.ffn, c.tp}, {c.ffn, c.tp}}; }

at::Tensor shard_pieces(const Case& c, const at::Tensor& whole, const Pieces& pieces, int64_t tp_rank) {
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const Piece& piece : pieces) {
    const int64_t rows = piece.rows / piece.parts, part = tp_rank / (c.tp / piece.parts);
    parts.push_back(whole.narrow(0, first + part * rows, rows));
    first += piece.rows;
  }
  return at::cat(parts);
}

at::Tensor join_pieces(const Case& c, const std::vector<at::Tensor>& of_ranks, const Pieces& pieces) {
  std::vector<at::Tensor> joined;
  int64_t first = 0;
  for (const Piece& piece : pieces) {
    const int64_t rows = piece.rows / piece.parts, copies = c.tp / piece.parts;
    for (int64_t part = 0; part < piece.parts; ++part) {
      at::Tensor sum;
      for (int64_t copy = 0; copy < copies; ++copy) {
        const at::Tensor one = of_ranks[static_cast<size_t>(part * copies + copy)].narrow(0, first, rows);
        sum = sum.defined() ? sum + one : one;
      }
      joined.push_back(sum);
    }
    first += rows;
  }
  return at::cat(joined);
}

// Sums over cp; what is left are the tensor-parallel ranks'.
std::vector<at::Tensor> summed_over_cp(const Case& c, const std::vector<at::Tensor>& gradients) {
  const auto tp = static_cast<size_t>(c.tp);
  std::vector<at::Tensor> sums(gradients.begin(), gradients.begin() + c.tp);
  for (size_t i = tp; i < gradients.size(); ++i) sums[i % tp] = sums[i % tp] + gradients[i];
  return sums;
}

at::Tensor same_on_all(const std::vector<at::Tensor>& parts) {
  for (const at::Tensor& part : parts) EXPECT_TRUE(at::equal(part, parts[0])) << "ranks differ";
  return parts[0];
}

}  // namespace

LayerTensors shard(const Case& c, const LayerTensors& whole, int64_t tp_rank) {
  return {whole.attention_norm.clone(),
          shard_pieces(c, whole.qkv, qkv_pieces(c), tp_rank),
          shard_columns(whole.attention_out, c.tp, tp_rank),
          whole.ffn_norm.clone(),
          shard_pieces(c, whole.gate_up, gate_up_pieces(c), tp_rank),
          shard_columns(whole.down, c.tp, tp_rank)};
}

LayerTensors join(const Case& c, const std::vector<LayerTensors>& gradients) {
  const auto all = [&](at::Tensor LayerTensors::*member) {
    std::vector<at::Tensor> tensors;
    for (const LayerTensors& one : gradients) tensors.push_back(one.*member);
    return tensors;
  };
  const auto summed = [&](at::Tensor LayerTensors::*member) { return summed_over_cp(c, all(member)); };
  return {join_norm_gradients(c, all(&LayerTensors::attention_norm)),
          join_pieces(c, summed(&LayerTensors::qkv), qkv_pieces(c)),
          at::cat(summed(&LayerTensors::attention_out), 1),
          join_norm_gradients(c, all(&LayerTensors::ffn_norm)),
          join_pieces(c, summed(&LayerTensors::gate_up), gate_up_pieces(c)),
          at::cat(summed(&LayerTensors::down), 1)};
}

at::Tensor shard_vocabulary(const Case& c, const at::Tensor& whole, int64_t tp_rank, double padding) {
  const model::ShardShape s = c.shape();
  at::Tensor part = at::full({s.vocab, whole.size(1)}, padding, whole.options());
  const int64_t rows = s.vocab_rows(tp_rank);
  if (rows > 0) part.narrow(0, 0, rows).copy_(whole.narrow(0, tp_rank * s.vocab, rows));
  return part;
}

at::Tensor join_vocabulary(const Case& c, const std::vector<at::Tensor>& gradients) {
  const at::Tensor whole = at::cat(summed_over_cp(c, gradients));
  const at::Tensor padding = whole.narrow(0, c.vocab, whole.size(0) - c.vocab);
  EXPECT_TRUE(at::equal(padding, at::zeros_like(padding))) << "padding has a gradient";
  return whole.narrow(0, 0, c.vocab);
}

at::Tensor own_tokens(const Case& c, const at::Tensor& whole, int64_t cp_rank) {
  if (c.cp == 1) return whole.clone();
  std::vector<at::Tensor> chunks;
  for (const at::Tensor& sequence : whole.chunk(c.micro_batch)) {
    const auto all = sequence.chunk(2 * c.cp);
    chunks.push_back(all[static_cast<size_t>(cp_rank)]);
    chunks.push_back(all[static_cast<size_t>(2 * c.cp - 1 - cp_rank)]);
  }
  return at::cat(chunks);
}

at::Tensor shard_tokens(const Context& ctx, const Case& c, const at::Tensor& whole) {
  const at::Tensor own = own_tokens(c, whole, ctx.cp_rank());
  return c.sequence_parallel ? own.chunk(c.tp)[static_cast<size_t>(ctx.tp_rank())].clone() : own;
}

TokenPlaces places_of(const Context& ctx, const Case& c) {
  if (c.documents.empty()) return token_places(ctx, {});
  return token_places(ctx, own_tokens(c, document_starts(c), ctx.cp_rank()));
}

at::Tensor join_tokens(const Case& c, const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> of_cp;  // all tokens of each context-parallel rank
  for (auto first = parts.begin(); first != parts.end(); first += c.tp) {
    const std::vector<at::Tensor> of_tp(first, first + c.tp);
    of_cp.push_back(c.sequence_parallel ? at::cat(of_tp) : same_on_all(of_tp));
  }
  // Where own_tokens takes each row from, this puts it back.
  at::Tensor whole = at::empty({c.tokens(), of_cp[0].size(1)}, of_cp[0].options());
  for (int64_t rank = 0; rank < c.cp; ++rank) {
    whole.index_copy_(0, own_tokens(c, at::arange(c.tokens(), at::kLong), rank),
                      of_cp[static_cast<size_t>(rank)]);
  }
  return whole;
}

at::Tensor join_norm_gradients(const Case& c, const std::vector<at::Tensor>& parts) {
  const std::vector<at::Tensor> of_tp = summed_over_cp(c, parts);
  return c.sequence_parallel ? at::stack(of_tp).sum(0) : same_on_all(of_tp);
}

LayerTensors random_layer(const Case& c) {
  const int64_t h = c.hidden(), width = (c.heads + 2 * c.kv_heads) * c.head_dim;
  const double std = 1.0 / std::sqrt(static_cast<double>(h));
  const at::Tensor ones = at::ones({h}, at::kDouble);
  const auto norm = [&](uint64_t seed) {
    return (ones + random_tensor(c, {h}, 0.2, seed)).to(scalar_type(c.dtype)).to(at::kDouble);
  };
  return {
      norm(1), random_tensor(c, {width, h}, std, 2),     random_tensor(c, {h, c.heads * c.head_dim}, std, 3),
      norm(4), random_tensor(c, {2 * c.ffn, h}, std, 5), random_tensor(c, {h, c.ffn}, std, 6)};
}

LayerTensors map(const LayerTensors& t, const std::function<at::Tensor(const at::Tensor&)>& f) {
  return {f(t.attention_norm), f(t.qkv), f(t.attention_out), f(t.ffn_norm), f(t.gate_up), f(t.down)};
}

}  // namespace lockstep::nn::test
