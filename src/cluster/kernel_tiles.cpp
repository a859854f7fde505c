#include "cluster/kernel_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::cluster {

namespace {

constexpr double load_cost = 16;
constexpr double fill = 64;

// In floating point: products of these counts may leave 64 bits.
double pieces(int64_t size, int64_t piece) { return static_cast<double>((size + piece - 1) / piece); }

double loads(Tile tile) {
  return 1 + load_cost * (1 / static_cast<double>(tile.m) + 1 / static_cast<double>(tile.n));
}

}  // namespace

double tile_work(Tile tile) { return loads(tile) / loads(product_tiles.front()); }

double tiled_product_flops(int64_t m, int64_t n, int64_t k, int64_t slices, int64_t multiprocessors,
                           int64_t batch) {
  const double depth = pieces(k, slices) + fill;
  double least = std::numeric_limits<double>::infinity();
  for (const Tile tile : product_tiles) {
    double tiles = pieces(m, tile.m) * pieces(n, tile.n) * static_cast<double>(slices * batch);
    if (multiprocessors > 0) {
      const double wave = static_cast<double>(multiprocessors);
      tiles = std::ceil(tiles / wave) * wave;
    }
    const double area = static_cast<double>(tile.m * tile.n);
    least = std::min(least, 2 * tiles * area * depth * tile_work(tile));
  }
  return least;
}

double partial_sum_bytes(int64_t m, int64_t n, int64_t slices) {
  if (slices == 1) return 0;
  constexpr double fp32 = 4;
  return 2 * fp32 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(slices);
}

}  // namespace lockstep::cluster
