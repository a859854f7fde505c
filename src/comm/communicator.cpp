#include "comm/communicator.hpp"

#include <cstdint>

#include "base/error.hpp"
#include "comm/helper_thread.hpp"
#include "observe/span.hpp"

namespace lockstep::comm {

size_t size_of(DataType type) {
  switch (type) {
    case DataType::u8:
      return 1;
    case DataType::bf16:
      return 2;
    case DataType::i32:
    case DataType::f32:
      return 4;
    case DataType::i64:
    case DataType::f64:
      return 8;
  }
  throw UsageError("unknown data type " + std::to_string(static_cast<int>(type)));
}

std::string_view name_of(DataType type) {
  constexpr std::string_view names[] = {"u8", "i32", "i64", "bf16", "f32", "f64"};
  return static_cast<size_t>(type) < std::size(names) ? names[static_cast<size_t>(type)] : "unknown type";
}

std::string_view name_of(CallKind kind) {
  constexpr std::string_view names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"};
  return static_cast<size_t>(kind) < std::size(names) ? names[static_cast<size_t>(kind)]
                                                      : "unknown operation";
}

Communicator::Communicator(std::string name, std::vector<int> global_ranks, int rank)
    : name_(std::move(name)), global_ranks_(std::move(global_ranks)), rank_(rank) {}

Communicator::~Communicator() = default;

void Communicator::stop_helper() { helper_.reset(); }

HelperThread& Communicator::helper() {
  if (!helper_) helper_ = std::make_unique<HelperThread>();
  return *helper_;
}

void Communicator::check_timeout(std::chrono::milliseconds timeout) const {
  if (timeout.count() <= 0 || timeout > max_timeout)
    throw UsageError("group '" + name_ + "': a time-out of " + std::to_string(timeout.count()) +
                     " ms; it must be above 0 and at most a year");
}

void Communicator::set_timeout(std::chrono::milliseconds timeout) {
  check_timeout(timeout);
  timeout_ = timeout;
}

std::chrono::milliseconds Communicator::timeout_or_default(const OpOptions& options) const {
  if (options.timeout.count() == 0) return timeout_;
  check_timeout(options.timeout);
  return options.timeout;
}

CollectiveCall Communicator::call(CallKind kind, const void* input, void* output, size_t count, DataType type,
                                  ReduceOp op, int root, const OpOptions& options) const {
  if (root < 0 || root >= size())
    throw UsageError("group '" + name_ + "': root " + std::to_string(root) + " is not a rank of a group of " +
                     std::to_string(size()));
  CollectiveCall call{kind, input, output, count, type, op, root, options.name, timeout_or_default(options)};
  if (kind != CallKind::reduce_scatter) {
    refuse_fold(name_of(kind), options);
    return call;
  }
  call.accumulate = options.accumulate;
  call.contributors = options.contributors == 0 ? size() : options.contributors;
  check_fold(call);
  return call;
}

void Communicator::refuse_fold(std::string_view kind, const OpOptions& options) const {
  if (options.accumulate || options.contributors != 0)
    throw UsageError("group '" + name_ + "': " + std::string(kind) +
                     " takes neither accumulate nor contributors; a reduce_scatter does");
}

void Communicator::check_fold(const CollectiveCall& c) const {
  const std::string where = "group '" + name_ + "': reduce_scatter ";
  if (c.contributors < 1 || c.contributors > size())
    throw UsageError(where + "with " + std::to_string(c.contributors) + " contributors in a group of " +
                     std::to_string(size()) + "; give 1 to the group's size, or 0 for all");
  if (c.op != ReduceOp::sum && (c.accumulate || c.contributors != size()))
    throw UsageError(where + "of a maximum takes neither accumulate nor contributors; a sum does");
  if (!c.accumulate || rank_ >= c.contributors) return;
  const size_t bytes = c.count * size_of(c.type);
  const auto input = reinterpret_cast<uintptr_t>(c.input), output = reinterpret_cast<uintptr_t>(c.output);
  if (output < input + bytes * static_cast<size_t>(size()) && input < output + bytes)
    throw UsageError(where + "that accumulates needs an output outside its input");
}

void Communicator::execute(const CollectiveCall& c) {
  const int64_t start = observe::monotonic_ns();
  if (helper_ && !helper_->idle())
    enqueue(c).wait();
  else
    run(c);
  blocked_ns_ += observe::monotonic_ns() - start;
}

Work Communicator::enqueue(const CollectiveCall& c) {
  return Work(helper().enqueue([this, c, name = std::string(c.name)] {
    CollectiveCall own = c;
    own.name = name;
    run(own);
  }));
}

void Communicator::all_reduce(void* data, size_t count, DataType type, ReduceOp op, const OpOptions& o) {
  execute(call(CallKind::all_reduce, data, data, count, type, op, 0, o));
}
void Communicator::all_gather(const void* input, void* output, size_t count, DataType type,
                              const OpOptions& o) {
  execute(call(CallKind::all_gather, input, output, count, type, ReduceOp::sum, 0, o));
}
void Communicator::reduce_scatter(const void* input, void* output, size_t count, DataType type, ReduceOp op,
                                  const OpOptions& o) {
  execute(call(CallKind::reduce_scatter, input, output, count, type, op, 0, o));
}
void Communicator::broadcast(void* data, size_t count, DataType type, int root, const OpOptions& o) {
  execute(call(CallKind::broadcast, data, data, count, type, ReduceOp::sum, root, o));
}
void Communicator::barrier(const OpOptions& o) {
  execute(call(CallKind::barrier, nullptr, nullptr, 0, DataType::u8, ReduceOp::sum, 0, o));
}

Work Communicator::all_reduce_async(void* data, size_t count, DataType type, ReduceOp op,
                                    const OpOptions& o) {
  return enqueue(call(CallKind::all_reduce, data, data, count, type, op, 0, o));
}
Work Communicator::all_gather_async(const void* input, void* output, size_t count, DataType type,
                                    const OpOptions& o) {
  return enqueue(call(CallKind::all_gather, input, output, count, type, ReduceOp::sum, 0, o));
}
Work Communicator::reduce_scatter_async(const void* input, void* output, size_t count, DataType type,
                                        ReduceOp op, const OpOptions& o) {
  return enqueue(call(CallKind::reduce_scatter, input, output, count, type, op, 0, o));
}
Work Communicator::broadcast_async(void* data, size_t count, DataType type, int root, const OpOptions& o) {
  return enqueue(call(CallKind::broadcast, data, data, count, type, ReduceOp::sum, root, o));
}
Work Communicator::barrier_async(const OpOptions& o) {
  return enqueue(call(CallKind::barrier, nullptr, nullptr, 0, DataType::u8, ReduceOp::sum, 0, o));
}

void Communicator::recv(void* data, size_t count, DataType type, int from, int tag, const OpOptions& o) {
  irecv(data, count, type, from, tag, o).wait();
}

}  // namespace lockstep::comm
