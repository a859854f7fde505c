// Collectives of the ranks that share parameters, which run beside the computation.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "comm/work.hpp"
#include "nn/context.hpp"
#include "train/wait_meter.hpp"

namespace lockstep::train {

class AsyncCollectives {
 public:
  enum class Use { unshard, reduction, gather };

  // `context` and `meter` outlive this.
  AsyncCollectives(const nn::Context& context, WaitMeter& meter) : context_(context), meter_(meter) {}
  ~AsyncCollectives();  // waits for what is under way on its tensors
  AsyncCollectives(const AsyncCollectives&) = delete;
  AsyncCollectives& operator=(const AsyncCollectives&) = delete;

  // `name`: static storage. `tensors` are kept until the collective is waited for.
  void start(Use use, const char* name, int chunk, int64_t bytes, comm::Work work,
             std::vector<at::Tensor> tensors);
  // Runs one now; its record keeps its place among the others'.
  void run_in_order(const char* name, int64_t bytes, const std::function<void()>& collective);
  // Waits for all of a use, of one chunk or (-1) of all.
  void wait(Use use, int chunk = -1);
  // Waits for what is left and hands the records to the log, in the order in which they were started.
  void finish_step();

 private:
  struct Pending {
    Use use;
    comm::Work work;
    size_t record;
    std::vector<at::Tensor> tensors;
  };
  void wait(Pending& pending);

  const nn::Context& context_;
  WaitMeter& meter_;
  std::vector<Pending> pending_;
  std::vector<nn::OpRecord> records_;
};

}  // namespace lockstep::train
