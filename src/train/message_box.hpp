// Pipeline messages of one step: receives posted early and waited for by the pass that needs them, sends that
// go on beside the computation.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <vector>

#include "comm/communicator.hpp"
#include "nn/context.hpp"
#include "parallel/program.hpp"
#include "train/wait_meter.hpp"

namespace lockstep::train {

class MessageBox {
 public:
  // `pp` may be null when there is one stage. `log` takes the records in the order in which the program
  // queues the messages; a receive's time is the time that was spent waiting for it.
  MessageBox(comm::Communicator* pp, const nn::Context& context, WaitMeter& meter, int micro_batches);
  ~MessageBox();  // waits for the sends: their tensors are here
  MessageBox(const MessageBox&) = delete;
  MessageBox& operator=(const MessageBox&) = delete;

  void post_receive(const parallel::Action& action);
  void send(const parallel::Action& action, at::Tensor tensor);
  // What the posted receive of this kind, chunk and micro-batch brought. RunError when none was posted.
  at::Tensor take(parallel::ActionKind receive, int chunk, int micro_batch);
  // Runs a blocking collective of the pp axis now; its record keeps its place among the messages'.
  void run_in_order(const char* name, int64_t bytes, const std::function<void()>& collective);
  // Waits for the sends and hands the records to the log.
  void finish_step();

 private:
  struct Pending {
    at::Tensor tensor;
    comm::Work work;
    size_t record = 0;
  };
  int tag(parallel::ActionKind receive, int chunk, int micro_batch) const;
  void book_message(const comm::Work& work);
  size_t add_record(const char* name, const parallel::Action& action, int64_t bytes);

  comm::Communicator* pp_;
  const nn::Context& context_;
  WaitMeter& meter_;
  int micro_batches_;
  std::map<int, Pending> receives_;  // by tag
  std::vector<Pending> sends_;
  std::vector<nn::OpRecord> records_;
};

}  // namespace lockstep::train
