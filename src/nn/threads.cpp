#include "nn/threads.hpp"

#include <ATen/Parallel.h>

// Of OpenBLAS; null where LibTorch stands on another BLAS.
extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace lockstep::nn {

void compute_on_one_thread() {
  at::set_num_threads(1);
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
}

}  // namespace lockstep::nn
