// What a matrix product [m, k] x [k, n] costs a GPU beyond its own FLOPs, because it is computed in tiles.
//
// NVIDIA, "Matrix Multiplication Background User's Guide" (docs.nvidia.com/deeplearning/performance): the
// output is cut into tiles, each the work of one multiprocessor. A tile that is partly empty costs as much as
// a full one (tile quantisation), and a last round that leaves multiprocessors without a tile costs as much
// as a full one (wave quantisation). Large tiles load fewer operands for each multiply-add and reach more of
// the peak; small ones fill the device sooner. Libraries choose among a few shapes (CUTLASS, "Efficient GEMM
// in CUDA"), so the cheapest one counts here.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::cluster {

struct Tile {
  int64_t m = 0;
  int64_t n = 0;
};

// CUTLASS's usual shapes for tensor cores, the largest first.
inline constexpr std::array<Tile, 8> product_tiles = {
    {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64}, {64, 128}, {64, 64}}};

// Work of one multiply-add in a tile of this shape, relative to the largest shape, which has 1. A step along
// k loads tile.m + tile.n operands for tile.m x tile.n multiply-adds; of each load so much is not hidden as
// `load_cost` multiply-adds take:
//
//   work = (1 + load_cost (1 / tile.m + 1 / tile.n)) / (the same of 256 x 128)
//
// The form is the operand traffic of a blocked product; load_cost = 16 is an assumption, by which tiles of
// 128 x 128 reach 95 % of what those of 256 x 128 do, and 64 x 64 reach 79 %.
double tile_work(Tile tile);

// FLOPs that a device which is busy all the time could do while it computes the product: 2 m n k, the empty
// parts of tiles and waves, and for each tile as much as `fill` = 64 steps along k, in which its pipeline of
// loads fills and its result is written (an assumption; why short products are slow). Of the shape above that
// needs the least.
//
// `slices` >= 1 cuts k into so many tiles that sum parts of one result (split-K; CUTLASS, "Efficient GEMM in
// CUDA"): a product with few tiles and a long k then still fills the device. `multiprocessors` = 0: no waves.
// `batch` independent products fill waves together. Never falls when a size grows.
double tiled_product_flops(int64_t m, int64_t n, int64_t k, int64_t slices, int64_t multiprocessors,
                           int64_t batch = 1);

// Memory traffic of the partial sums of split-K: every slice writes them in fp32, and they are read again to
// be added. 0 for one slice.
double partial_sum_bytes(int64_t m, int64_t n, int64_t slices);

}  // namespace lockstep::cluster
