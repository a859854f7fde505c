// How long one kernel takes on a modelled GPU: a roofline, with the efficiencies of the cluster file.
//
// Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009: a kernel is bound by arithmetic or by memory
// traffic, whichever takes longer; its launch comes on top:
//
//   seconds = max(flops / (peak x efficiency x shape), bytes / (memory bandwidth x memory_efficiency)) +
//   launch
//
// `shape` is what a matrix product loses to its own size (see product_shape_efficiency). Nothing here knows
// the program: callers give FLOPs, bytes and sizes.
#pragma once

#include <cstdint>

#include "config/run_file.hpp"

namespace lockstep::cluster {

// Share of the large product's speed that [m, k] x [k, n] reaches, in (0, 1]. A product is computed in output
// tiles of 128 x 128 (CUTLASS's usual tile for tensor cores): a tile that is partly empty costs as much as a
// full one (tile quantisation; NVIDIA, "Matrix Multiplication Background User's Guide"), and each tile pays
// for filling and draining its pipeline as much as 64 steps along k. How tiles fill the last wave over a
// device's multiprocessors is left to the device's curve, which the cluster file does not have.
double product_shape_efficiency(int64_t m, int64_t n, int64_t k);

class Hardware {
 public:
  // `cluster` has passed config's rules: rates and efficiencies are positive.
  Hardware(const config::ClusterConfig& cluster, config::Dtype dtype);

  double peak_flops() const { return peak_; }  // FLOP/s, dense, of the compute dtype

  double product_seconds(double flops, double bytes, int64_t m, int64_t n, int64_t k) const;
  double attention_seconds(double flops, double bytes) const;
  double memory_seconds(double bytes) const;

 private:
  double roofline(double flops, double rate, double bytes) const;

  double peak_;
  double product_rate_;
  double attention_rate_;
  double memory_rate_;
  double launch_;
};

}  // namespace lockstep::cluster
