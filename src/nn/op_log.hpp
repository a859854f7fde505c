// The record of what was executed: every op with its name, stream, bytes and times. A test holds it against
// the program; the trainer turns it into spans. Bytes are those of the tensors at hand, never a formula's.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
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

// An op one of whose results has a NaN or an infinity.
struct NonFiniteOp {
  std::string_view name;  // static storage
  int layer = -1;         // of the whole model; -1: none
  int chunk = -1;         // as in OpRecord
  int micro_batch = -1;
  bool communication = false;  // the values came from another rank, or were summed with them
  int64_t order = 0;           // ops since checking began: the same op on every rank that runs the same ops
};

// Two modes, each off until asked for: recording keeps every op; checking looks at every op's results, as its
// scope is told of them, and keeps the first op that has one which is not finite. While both are off, an op
// costs one test. One thread uses a log.
class OpLog {
 public:
  void set_recording(bool on) {
    recording_ = on;
    active_ = recording_ || checking_;
  }
  bool recording() const { return recording_; }
  // Turning it on forgets what was found before.
  void set_checking(bool on);
  bool checking() const { return checking_; }
  bool active() const { return active_; }
  const std::optional<NonFiniteOp>& first_non_finite() const { return first_non_finite_; }
  // The layer (of the whole model) that the ops that follow belong to; -1: none.
  void set_layer(int layer) { layer_ = layer; }
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
  int layer_ = -1;
  bool recording_ = false;
  bool checking_ = false;
  bool active_ = false;  // either
  int64_t checked_ = 0;  // ops since checking began
  std::optional<NonFiniteOp> first_non_finite_;
};

// One op, from construction to destruction. `log` may be null.
class OpScope {
 public:
  using Tensors = std::initializer_list<std::reference_wrapper<const at::Tensor>>;

  OpScope(OpLog* log, std::string_view name, Tensors operands, Stream stream = Stream::compute)
      : OpScope(log, name, stream) {
    for (const at::Tensor& operand : operands) elements(operand, operand.numel());
  }
  // A communication: the message's bytes, for a collective those of the whole tensor (gathered output,
  // unreduced input).
  OpScope(OpLog* log, std::string_view name, Stream stream, int64_t message_bytes);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  // A result that is written.
  void result(const at::Tensor& tensor) {
    elements(tensor, tensor.numel());
    check(tensor);
  }
  // Elements of a larger tensor that are read or written, such as rows that are looked up.
  void elements(const at::Tensor& of, int64_t count) {
    if (log_) record_.bytes += count * static_cast<int64_t>(of.element_size());
  }
  // One that is read and written: added to, or changed in place.
  void accumulated(const at::Tensor& tensor) {
    elements(tensor, 2 * tensor.numel());
    check(tensor);
  }
  // What a communication brings: looked at, at the op's end, while checking.
  void check(const at::Tensor& tensor) {
    if (log_ && log_->checking_) results_.push_back(tensor);
  }

 private:
  OpScope(OpLog* log, std::string_view name, Stream stream);
  void find_non_finite() const;

  OpLog* log_;  // null while neither recording nor checking
  OpRecord record_;
  bool communication_ = false;
  std::vector<at::Tensor> results_;
};

}  // namespace lockstep::nn
