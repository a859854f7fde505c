// What runs is what the layer program says: names, streams, bytes and order of every op, and the bytes held
// between passes.
#include <gtest/gtest.h>

#include "chunk.hpp"

namespace lockstep::nn::test {
namespace {

void expect_same(const std::vector<OpRecord>& recorded, const std::vector<model::Op>& program) {
  ASSERT_EQ(recorded.size(), program.size());
  int64_t before = 0;
  for (size_t i = 0; i < program.size(); ++i) {
    SCOPED_TRACE(std::string(program[i].name) + ", op " + std::to_string(i));
    EXPECT_EQ(recorded[i].name, program[i].name);
    EXPECT_EQ(recorded[i].stream, program[i].stream);
    EXPECT_EQ(recorded[i].bytes, program[i].bytes);
    EXPECT_GE(recorded[i].start_ns, before);
    EXPECT_GE(recorded[i].end_ns, recorded[i].start_ns);
    before = recorded[i].end_ns;
  }
}

std::vector<model::ChunkContent> contents() {
  return {{0, 3, true, true}, {1, 2, false, false}, {3, 0, false, true}, {0, 0, true, false}};
}

// What a chunk runs and holds, fused and in two halves.
void expect_program(const Context& ctx, const Case& c, const model::ChunkContent& content,
                    const model::Recompute& recompute) {
  const model::LayerProgram program{c.shape(), recompute};
  OpLog& log = *ctx.log;
  log.set_recording(true);
  Chunk fused(ctx, c, content, recompute);
  fused.forward();
  expect_same(log.take(), program.chunk_forward(content));
  EXPECT_EQ(fused.activation_bytes(), model::chunk_activation_bytes(ctx.shape, recompute, content));
  fused.backward();
  expect_same(log.take(), program.chunk_backward(content));
  EXPECT_EQ(fused.activation_bytes(), 0);

  Chunk halves(ctx, c, content, recompute);
  halves.forward();
  log.take();
  halves.backward_input();
  expect_same(log.take(), program.chunk_backward_input(content));
  EXPECT_EQ(halves.stash_bytes(), model::chunk_stash_bytes(ctx.shape, recompute, content));
  halves.backward_weight();
  expect_same(log.take(), program.chunk_backward_weight(content));
}

TEST(Program, ChunksRunTheLayerProgram) {
  std::vector<model::Recompute> modes = recompute_modes();
  modes.insert(modes.begin(), model::Recompute{});
  int programs = 0;
  for (const Case& c : chunk_layouts()) {
    for (const model::Recompute& recompute : modes) {
      if (recompute.norm && c.keep_gathered) continue;  // the run file's rules refuse it
      for (const model::ChunkContent& content : contents()) {
        SCOPED_TRACE(describe(c) + describe(recompute));
        run_ranks(c, [&](Context& ctx, OpLog&) { expect_program(ctx, c, content, recompute); });
        ++programs;
      }
    }
  }
  std::printf("%d programs\n", programs);
}

TEST(OpLog, RecordsOnlyWhileOnAndCarriesTheContext) {
  OpLog log;
  const at::Tensor operand = at::zeros({3}, at::kFloat), sum = at::zeros({2}, at::kDouble);
  { const OpScope scope(&log, "off", {operand}); }
  { const OpScope scope(nullptr, "nowhere", {operand}); }
  EXPECT_TRUE(log.take().empty());
  log.set_recording(true);
  log.set_context(2, 5);
  {
    OpScope scope(&log, "on", {operand});
    scope.accumulated(sum);
    log.set_context(-1, -1);  // belongs to what comes after
  }
  { const OpScope scope(&log, "message", Stream::pp, 77); }
  const std::vector<OpRecord> records = log.take();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].name, "on");
  EXPECT_EQ(records[0].bytes, 3 * 4 + 2 * 2 * 8);
  EXPECT_EQ(records[0].chunk, 2);
  EXPECT_EQ(records[0].micro_batch, 5);
  EXPECT_EQ(records[1].stream, Stream::pp);
  EXPECT_EQ(records[1].bytes, 77);
  EXPECT_EQ(records[1].chunk, -1);
  EXPECT_TRUE(log.take().empty());
}

}  // namespace
}  // namespace lockstep::nn::test
