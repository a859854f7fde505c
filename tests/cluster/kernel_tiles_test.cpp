#include "cluster/kernel_tiles.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

namespace lockstep::cluster {
namespace {

// Each line worked out by hand: tiles x tile area x 2 x (k + 64) x the shape's work.
TEST(KernelTiles, WorkOfAShapeByHand) {
  EXPECT_DOUBLE_EQ(tile_work({256, 128}), 1);
  EXPECT_DOUBLE_EQ(tile_work({128, 256}), 1);
  EXPECT_DOUBLE_EQ(tile_work({128, 128}), 1.25 / 1.1875);  // 1 + 16/128 + 16/128 over 1 + 16/256 + 16/128
  EXPECT_DOUBLE_EQ(tile_work({64, 64}), 1.5 / 1.1875);
  EXPECT_DOUBLE_EQ(tile_work({64, 256}), 1.3125 / 1.1875);
}

TEST(KernelTiles, FullTilesOfALargeProductCostTheirFillAlone) {
  // 4 x 8 tiles of 256 x 128.
  EXPECT_DOUBLE_EQ(tiled_product_flops(1024, 1024, 4096, 1, 0), 2.0 * 1024 * 1024 * (4096 + 64));
  // A short product: as long to fill as to run.
  EXPECT_DOUBLE_EQ(tiled_product_flops(256, 256, 64, 1, 0), 2 * 2.0 * 256 * 256 * 64);
}

TEST(KernelTiles, ATilePartlyEmptyCostsAsMuchAsAFullOne) {
  // One tile of 64 x 64 is enough for 64 x 64 and for 1 x 1.
  const double one = 2.0 * 64 * 64 * (100 + 64) * 1.5 / 1.1875;
  EXPECT_DOUBLE_EQ(tiled_product_flops(64, 64, 100, 1, 0), one);
  EXPECT_DOUBLE_EQ(tiled_product_flops(1, 1, 100, 1, 0), one);
  // 65 columns: two of them would cost 2 x 1.5 / 1.1875 x 4096, one of 64 x 128 1.375 / 1.1875 x 8192: less.
  EXPECT_DOUBLE_EQ(tiled_product_flops(64, 65, 100, 1, 0), 2.0 * 64 * 128 * (100 + 64) * 1.375 / 1.1875);
}

// The guide's example: on the A100's 108 multiprocessors, 12 x 9 tiles of 256 x 128 are one wave, 13 x 9 =
// 117 are two, the second nearly empty.
TEST(KernelTiles, ALastWaveCostsAsMuchAsAFullOne) {
  const double wave = 108.0 * 2 * 256 * 128 * (1024 + 64);
  EXPECT_DOUBLE_EQ(tiled_product_flops(12 * 256, 9 * 128, 1024, 1, 108), wave);
  // Without waves it is 9 tiles more.
  EXPECT_DOUBLE_EQ(tiled_product_flops(13 * 256, 9 * 128, 1024, 1, 0), wave * 117 / 108);
  // With them small tiles do better than two waves: 52 x 18 = 936 tiles of 64 x 64 are nine waves of an
  // eighth of the area, 1.5 / 1.1875 of the work each: 1.42 waves.
  EXPECT_DOUBLE_EQ(tiled_product_flops(13 * 256, 9 * 128, 1024, 1, 108), 9.0 / 8 * wave * 1.5 / 1.1875);
}

TEST(KernelTiles, SlicesOfALongProductFillTheDevice) {
  // One tile of 64 x 64 keeps one of 100 multiprocessors busy, eight slices eight of them.
  const double area = 2.0 * 64 * 64 * 1.5 / 1.1875;
  EXPECT_DOUBLE_EQ(tiled_product_flops(64, 64, 8192, 1, 100), 100 * area * (8192 + 64));
  EXPECT_DOUBLE_EQ(tiled_product_flops(64, 64, 8192, 8, 100), 100 * area * (1024 + 64));
  EXPECT_DOUBLE_EQ(tiled_product_flops(64, 64, 8193, 8, 100), 100 * area * (1025 + 64));
  EXPECT_EQ(partial_sum_bytes(100, 10, 1), 0);
  EXPECT_EQ(partial_sum_bytes(100, 10, 4), 100 * 10 * 4 * (4 + 4));
}

// The same from the other side: every tile is dealt to the multiprocessor that has least, and the busiest one
// says how long the device was held.
double dealt_flops(int64_t m, int64_t n, int64_t k, int64_t slices, int64_t multiprocessors) {
  double least = -1;
  for (const Tile tile : product_tiles) {
    const double loads = 1 + 16.0 / static_cast<double>(tile.m) + 16.0 / static_cast<double>(tile.n);
    std::vector<int64_t> dealt(static_cast<size_t>(multiprocessors), 0);
    size_t next = 0;
    for (int64_t row = 0; row < m; row += tile.m) {
      for (int64_t column = 0; column < n; column += tile.n) {
        for (int64_t slice = 0; slice < slices; ++slice) {
          ++dealt[next];
          next = (next + 1) % dealt.size();
        }
      }
    }
    int64_t depth = 0;
    while (depth * slices < k) ++depth;
    const int64_t busiest = *std::max_element(dealt.begin(), dealt.end());
    const double tile_flops = 2.0 * static_cast<double>(tile.m) * static_cast<double>(tile.n) *
                              (static_cast<double>(depth) + 64) * loads / (1 + 16.0 / 256 + 16.0 / 128);
    const double flops = static_cast<double>(busiest * multiprocessors) * tile_flops;
    if (least < 0 || flops < least) least = flops;
  }
  return least;
}

TEST(KernelTiles, EqualsTilesDealtOneByOne) {
  EXPECT_TRUE(rc::check("dealt", [] {
    const int64_t m = *rc::gen::inRange(1, 3000), n = *rc::gen::inRange(1, 3000);
    const int64_t k = *rc::gen::inRange(1, 3000), slices = *rc::gen::inRange(1, 17);
    const int64_t multiprocessors = *rc::gen::inRange(1, 200);
    const double expected = dealt_flops(m, n, k, slices, multiprocessors);
    RC_ASSERT(std::abs(tiled_product_flops(m, n, k, slices, multiprocessors) / expected - 1) < 1e-12);
    // No waves are waves of one.
    RC_ASSERT(std::abs(tiled_product_flops(m, n, k, slices, 0) / dealt_flops(m, n, k, slices, 1) - 1) <
              1e-12);
  }));
}

}  // namespace
}  // namespace lockstep::cluster
