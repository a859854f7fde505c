// One compute thread a worker: parallelism is between workers, and more threads than cores only wait for each
// other.
#pragma once

namespace lockstep::nn {

// Sets LibTorch's threads and those of the OpenBLAS under it, which heeds neither at::set_num_threads nor,
// once it is loaded, the environment. Call before the first product.
void compute_on_one_thread();

}  // namespace lockstep::nn
