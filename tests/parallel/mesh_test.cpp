#include "parallel/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <string>

#include "parallel/layer_split.hpp"
#include "parallel/layout.hpp"
#include "sample_run.hpp"

namespace lockstep::parallel {
namespace {

TEST(Mesh, RankIsTheFormulaOfTheDesign) {
  const Mesh mesh(2, 3, 4, 5);
  EXPECT_EQ(mesh.size(), 120);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Coordinates c = mesh.coordinates(rank);
    EXPECT_EQ(c.tp + 2 * (c.cp + 3 * (c.pp + 4 * c.dp)), rank);
    EXPECT_EQ(mesh.rank(c), rank);
  }
}

// Every order of the axes: ranks and coordinates are each other's inverse, the first axis has neighbours.
TEST(Mesh, AnyOrderOfTheAxes) {
  std::vector<std::string> axes = {"cp", "dp", "pp", "tp"};
  do {
    const std::string order = axes[0] + "-" + axes[1] + "-" + axes[2] + "-" + axes[3];
    const Mesh mesh(2, 3, 4, 5, 1, order);
    const std::map<std::string, Axis> named = {
        {"tp", Axis::tp}, {"cp", Axis::cp}, {"pp", Axis::pp}, {"dp", Axis::dp}};
    int stride = 1;
    for (const std::string& axis : axes) {
      EXPECT_EQ(mesh.stride(named.at(axis)), stride) << order;
      stride *= mesh.size(named.at(axis));
    }
    for (int rank = 0; rank < mesh.size(); ++rank) {
      EXPECT_EQ(mesh.rank(mesh.coordinates(rank)), rank);
      for (const Axis axis : {Axis::tp, Axis::cp, Axis::pp, Axis::dp, Axis::dp_cp}) {
        const std::vector<int> group = mesh.group(axis, rank);
        ASSERT_EQ(static_cast<int>(group.size()), mesh.size(axis));
        EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
        EXPECT_EQ(mesh.group(axis, group.front()), group);
      }
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
  EXPECT_EQ(Mesh(2, 3, 4, 5, 1, "cp-tp-dp-pp").rank({1, 2, 3, 4}), 2 + 3 * (1 + 2 * (4 + 5 * 3)));
  EXPECT_THROW(Mesh(2, 3, 4, 5, 1, "tp-cp-pp"), std::invalid_argument);
  EXPECT_THROW(Mesh(2, 3, 4, 5, 1, "tp-cp-pp-xx"), std::invalid_argument);
}

TEST(Mesh, GroupsPartitionTheRanks) {
  const Mesh mesh(4, 3, 2, 3, 2);
  for (const Axis axis : {Axis::tp, Axis::tp_kv, Axis::cp, Axis::pp, Axis::pp_ends, Axis::dp, Axis::dp_cp}) {
    std::vector<int> seen(static_cast<size_t>(mesh.size()), 0);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const std::vector<int> group = mesh.group(axis, rank);
      ASSERT_EQ(static_cast<int>(group.size()), mesh.size(axis));
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
      EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
      for (const int member : group) EXPECT_EQ(mesh.group(axis, member), group);
      if (group.front() == rank) {
        for (const int member : group) ++seen[static_cast<size_t>(member)];
      }
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(Layout, TheModel405BHasOneLayerLessAtEachEnd) {
  const Layout layout(tests::llama3_405b());
  int64_t layers = 0;
  int64_t next = 0;
  for (int chunk = 0; chunk < 8; ++chunk) {
    for (int stage = 0; stage < 16; ++stage) {
      const auto& content = layout.chunk(stage, chunk);
      EXPECT_EQ(content.first_layer, next);
      next += content.layers;
      layers += content.layers;
      EXPECT_EQ(content.embedding, chunk == 0 && stage == 0);
      EXPECT_EQ(content.head, chunk == 7 && stage == 15);
    }
  }
  EXPECT_EQ(layers, 126);
  EXPECT_EQ(layout.chunk(0, 0).layers, 0);
  EXPECT_EQ(layout.chunk(15, 7).layers, 0);
}

TEST(Mesh, TheEndsOfThePipelineMeetAndMiddleStagesAreAlone) {
  const Mesh mesh(2, 1, 4, 1);
  EXPECT_EQ(mesh.group(Axis::pp_ends, 1), (std::vector<int>{1, 7}));
  EXPECT_EQ(mesh.group(Axis::pp_ends, 7), (std::vector<int>{1, 7}));
  EXPECT_EQ(mesh.group(Axis::pp_ends, 3), std::vector<int>{3});
}

// Gradients are summed over dp x cp with cp inside, so that replicas follow one another in the sum.
TEST(Mesh, TheSharingGroupHasContextInsideReplica) {
  const Mesh mesh(2, 2, 2, 2);
  EXPECT_EQ(mesh.group(Axis::dp_cp, 5), (std::vector<int>{5, 7, 13, 15}));
}

// One row of the vocabulary is on one tensor-parallel rank; each key and value head on tp / kv_heads.
TEST(Mesh, CopiesOfKeyAndValueHeadsAreNeighbours) {
  config::RunFile run = tests::sample_run(8, 1, 1, 1, 2);
  run.model.kv_heads = 2;
  const Mesh mesh(run);
  EXPECT_EQ(mesh.size(Axis::tp_kv), 4);
  EXPECT_EQ(mesh.group(Axis::tp_kv, 6), (std::vector<int>{4, 5, 6, 7}));
}

TEST(Layout, ShardsCoverEveryElementInWholeBlocks) {
  for (const int64_t elements : {1, 63, 64, 65, 1000, 100'000, 4'194'304, 4'194'305, 1'000'000'007}) {
    for (const int64_t ranks : {1, 2, 3, 5, 7, 64}) {
      const Segment s = make_segment(elements, ranks);
      EXPECT_GE(s.padded(), elements);
      EXPECT_LT(s.padded(), elements + ranks * s.block + s.block);
      EXPECT_EQ(s.shard % s.block, 0);
      EXPECT_LE(s.blocks(), 65536);
      EXPECT_EQ(s.block, make_segment(elements, 1).block) << "no count of ranks may move a block";
    }
  }
}

TEST(Layout, ATiedEmbeddingOfTwoStagesIsASegmentOfItsOwn) {
  config::RunFile run = tests::sample_run(2, 2, 2, 1, 2);
  run.model.tie_embeddings = true;
  const Layout layout(run);
  const int64_t matrix = run.model.vocab * run.model.hidden / 2;
  for (const int stage : {0, 1}) {
    const auto segments = layout.segments(stage, 0);
    ASSERT_EQ(segments.size(), 2u);
    EXPECT_EQ(segments[1].elements, matrix);
    EXPECT_EQ(segments[0].elements + matrix, layout.chunk_elements(stage, 0));
  }
  run.parallel.pp = 1;
  run.cluster.gpus /= 2;
  EXPECT_EQ(Layout(run).segments(0, 0).size(), 1u) << "one stage holds it once";
}

TEST(LayerSplit, EveryLayerIsInOneChunkWhateverTheCounts) {
  for (const auto split : {config::LayerSplit::even, config::LayerSplit::cost}) {
    for (int64_t layers = 1; layers <= 23; ++layers) {
      for (int64_t p = 1; p <= 5; ++p) {
        for (int64_t v = 1; v <= 3; ++v) {
          if (split == config::LayerSplit::even && layers % (p * v) != 0) continue;
          config::RunFile run = tests::sample_run(1, p, 1, v, 2);
          run.model.layers = layers;
          run.parallel.layer_split = split;
          int64_t next = 0;
          for (const model::ChunkContent& content : split_layers(run)) {
            EXPECT_EQ(content.first_layer, next);
            EXPECT_GE(content.layers, 0);
            next += content.layers;
          }
          EXPECT_EQ(next, layers);
        }
      }
    }
  }
}

// Against all splits of 7 layers on 3 stages: none has a cheaper costliest stage. The output matrix of this
// vocabulary costs about two layers.
TEST(LayerSplit, ByCostTheCostliestStageIsTheCheapestPossible) {
  config::RunFile run = tests::sample_run(1, 3, 1, 1, 2);
  run.model.layers = 7;
  run.parallel.layer_split = config::LayerSplit::cost;
  const auto flops = [&](int64_t vocab, int64_t layers) {
    config::ModelConfig m = run.model;
    m.vocab = vocab;
    m.layers = layers;
    return model::flops_per_token(m, run.train.sequence, true);
  };
  for (const int64_t layer_costs : {0, 1, 2, 5}) {
    const double layer = flops(256, 2) - flops(256, 1);
    run.model.vocab =
        256 + static_cast<int64_t>(static_cast<double>(layer_costs) * layer) / (6 * run.model.hidden);
    const double head = flops(run.model.vocab, 1) - layer;
    const auto costliest = [&](const std::array<int64_t, 3>& n) {
      return std::max({static_cast<double>(n[0]) * layer, static_cast<double>(n[1]) * layer,
                       static_cast<double>(n[2]) * layer + head});
    };
    double best = 1e300;
    for (int64_t a = 0; a <= 7; ++a) {
      for (int64_t b = 0; a + b <= 7; ++b) best = std::min(best, costliest({a, b, 7 - a - b}));
    }
    const auto split = split_layers(run);
    EXPECT_NEAR(costliest({split[0].layers, split[1].layers, split[2].layers}), best, 1e-9 * best);
  }
}

}  // namespace
}  // namespace lockstep::parallel
