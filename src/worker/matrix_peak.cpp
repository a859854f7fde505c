#include "worker/matrix_peak.hpp"

#include <ATen/ATen.h>
#include <sched.h>

#include <algorithm>

#include "nn/context.hpp"

namespace lockstep::worker {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t side = 512;  // the fastest of 256, 512, 1024 and 2048 in each type, where it was tried
constexpr double product_flops = 2.0 * side * side * side;
constexpr std::chrono::duration<double> measured_time{0.1};
// A few products: short enough to fall between what else the machine does.
constexpr std::chrono::duration<double> window{0.0015};

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

double product_rate(config::Dtype dtype, std::chrono::duration<double> time) {
  const auto options = at::TensorOptions(nn::scalar_type(dtype));
  const at::Tensor a = at::full({side, side}, 0.5, options), b = at::full({side, side}, 0.25, options);
  at::Tensor c = at::empty({side, side}, options);
  at::mm_out(c, a, b);  // makes the kernel, warms the cache
  double best = 0;
  const auto end = Clock::now() + time;
  for (auto start = Clock::now(); start < end;) {
    int64_t products = 0;
    auto now = start;
    do {
      at::mm_out(c, a, b);
      ++products;
      now = Clock::now();
    } while (now - start < window);
    best = std::max(best, product_flops * static_cast<double>(products) /
                              std::chrono::duration<double>(now - start).count());
    start = now;
  }
  return best;
}

observe::MatrixPeak measure_matrix_peak(config::Dtype dtype, comm::Communicator& world, int cores) {
  observe::MatrixPeak peak;
  peak.cores = std::min(world.size(), cores);
  world.barrier({.name = "matrix_peak"});
  if (world.rank() < peak.cores) peak.flops = product_rate(dtype, measured_time);
  world.all_reduce(&peak.flops, 1, comm::DataType::f64, comm::ReduceOp::sum, {.name = "matrix_peak"});
  return peak;
}

}  // namespace lockstep::worker
