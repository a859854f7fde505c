#include "parallel/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>

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

TEST(Mesh, GroupsPartitionTheRanks) {
  const Mesh mesh(2, 1, 4, 3);
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::pp, Axis::dp}) {
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

TEST(Layout, ShardsCoverEveryElement) {
  for (const int64_t dp : {1, 2, 3, 5, 7}) {
    const Layout layout(tests::sample_run(2, 2, dp, 1, 2));
    for (int stage = 0; stage < 2; ++stage) {
      EXPECT_GE(layout.padded_chunk_elements(stage, 0), layout.chunk_elements(stage, 0));
      EXPECT_LT(layout.padded_chunk_elements(stage, 0), layout.chunk_elements(stage, 0) + dp);
      EXPECT_EQ(layout.padded_chunk_elements(stage, 0) % dp, 0);
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
