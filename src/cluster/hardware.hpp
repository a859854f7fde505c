// How long one kernel takes on a modelled GPU: a roofline, with the efficiencies of the cluster file.
//
// Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009: a kernel is bound by arithmetic or by memory
// traffic, whichever takes longer; its launch comes on top:
//
//   seconds = max(work / (peak x efficiency), bytes / (memory bandwidth x memory efficiency)) + launch
//
// Efficiencies are the cluster's curves by FLOPs or bytes, or its constants (kernel_curve.hpp). The work of a
// matrix product is more than its FLOPs, by what tiles and waves leave empty (kernel_tiles.hpp); the curve is
// read at that work, so it says what products reach that fill their tiles and waves. Nothing here knows the
// program: callers give FLOPs, bytes and sizes.
//
// More peak, bandwidth or efficiency never makes a kernel longer, more FLOPs, bytes or size never shorter.
#pragma once

#include <cstdint>

#include "cluster/kernel_curve.hpp"
#include "config/run_file.hpp"

namespace lockstep::cluster {

// Kernels whose curves may differ (config::ClusterConfig): those without one of their own have gemm_curve's
// or memory_curve's.
enum class Product : uint8_t { usual, weight_gradient };
enum class MemoryWork : uint8_t { usual, rows, exponentials };

class Hardware {
 public:
  // `cluster` has passed config's rules: rates and efficiencies are positive.
  Hardware(const config::ClusterConfig& cluster, config::Dtype dtype);

  double peak_flops() const { return peak_; }  // FLOP/s, dense, of the compute dtype

  // Of [m, k] x [k, n], sizes at least 1, whose operands and result have `bytes`. With multiprocessors, k is
  // cut into the number of slices that is fastest. A cluster with a gemm_curve and multiprocessors = 0 was
  // measured whole (a CPU's, by `calibrate`): there the curve at 2 m n k stands alone, without losses of
  // tiles or depth, which it contains. `batch` independent products (cuBLAS's strided batch) fill waves
  // together and have no split of k; `bytes` are those of all.
  double product_seconds(double bytes, int64_t m, int64_t n, int64_t k, Product product = Product::usual,
                         int64_t batch = 1) const;

  // Fused attention, forward or backward: `flops` are those that a causal mask leaves (model::Op counts half
  // of the square), so nothing is halved here. What is lost to blocks on the diagonal, to waves and to the
  // softmax is part of the curve.
  double attention_seconds(double flops, double bytes) const;

  // Bound by memory traffic alone.
  double memory_seconds(double bytes, MemoryWork work = MemoryWork::usual) const;

 private:
  double split_product_seconds(const KernelCurve& curve, double bytes, int64_t m, int64_t n, int64_t k,
                               int64_t slices, int64_t batch) const;

  double peak_;
  KernelCurve products_, weight_gradients_, attention_, memory_, rows_, exponentials_;
  double launch_;
  int64_t multiprocessors_;
  bool products_measured_whole_;
};

}  // namespace lockstep::cluster
