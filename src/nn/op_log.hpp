// The record of what was executed: every op with its name, stream, bytes and times. A test holds it against
// the program; the trainer turns it into spans. Bytes are those of the tensors at hand, never a formula's.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/span.hpp"

namespace lockstep::nn {

using observe::Stream;

struct OpRecord {
  std::string_view name;  // static storage
  Stream stream = Stream::compute;
  int64_t bytes = 0;     // as model::Op counts them
  int64_t start_ns = 0;  // observe::monotonic_ns
  int64_t end_ns = 0;
  int chunk = -1;        // the context at the op's start; -1: none
  int micro_batch = -1;  //
};

// One thread records. Off until set_recording(true); while off, an op costs one test.
class OpLog {
 public:
  void set_recording(bool on) { recording_ = on; }
  bool recording() const { return recording_; }
  // What the ops that follow belong to.
  void set_context(int chunk, int micro_batch) {
    chunk_ = chunk;
    micro_batch_ = micro_batch;
  }
  // For ops whose times the caller knows better, such as an asynchronous collective's. Chunk and micro-batch
  // are the record's own. Does nothing while off.
  void add(const OpRecord& record) {
    if (recording_) records_.push_back(record);
  }
  // What was recorded since the last take, in the order in which ops ended.
  std::vector<OpRecord> take() { return std::exchange(records_, {}); }

 private:
  friend class OpScope;
  std::vector<OpRecord> records_;
  int chunk_ = -1;
  int micro_batch_ = -1;
  bool recording_ = false;
};

// One op, from construction to destruction. `log` may be null.
class OpScope {
 public:
  using Tensors = std::initializer_list<std::reference_wrapper<const at::Tensor>>;

  OpScope(OpLog* log, std::string_view name, Tensors operands, Stream stream = Stream::compute)
      : OpScope(log, name, stream, 0) {
    for (const at::Tensor& operand : operands) result(operand);
  }
  // A communication: the message's bytes, for a collective those of the whole tensor (gathered output,
  // unreduced input).
  OpScope(OpLog* log, std::string_view name, Stream stream, int64_t message_bytes);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  // A result that is written.
  void result(const at::Tensor& tensor) {
    if (log_) record_.bytes += static_cast<int64_t>(tensor.nbytes());
  }
  // Elements of a larger tensor that are read or written, such as rows that are looked up.
  void elements(const at::Tensor& of, int64_t count) {
    if (log_) record_.bytes += count * static_cast<int64_t>(of.element_size());
  }
  // One that is read and written: added to, or changed in place.
  void accumulated(const at::Tensor& tensor) {
    result(tensor);
    result(tensor);
  }

 private:
  OpLog* log_;  // null while not recording
  OpRecord record_;
};

}  // namespace lockstep::nn
