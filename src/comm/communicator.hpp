// What a trainer sees of communication: one Communicator per group of ranks ("tp", "dp", "pp", "world"), made
// by a World. Buffers are raw pointers and counts of elements; no tensor library. Transports derive from
// both.
//
// Results do not depend on timing, sizes or paths: every sum is ((x0 + x1) + x2) + ... in ascending group
// rank; bf16 is summed in fp32 and rounded once, to nearest even; i64, i32 and u8 wrap. So a reduce-scatter
// is bitwise the slice of the all-reduce. All members of a group call its collectives in the same order;
// sends and receives are ordered per pair and tag only, and are independent of the collectives.
//
// Errors are RunError, name the group, the operation and its sequence number, and leave the group unusable:
// a time-out (names the global ranks that did not come), a dead rank (ends every wait of every group at
// once), and members that bring different operations, counts or types.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/work.hpp"

namespace lockstep::comm {

enum class DataType : uint8_t { u8, i32, i64, bf16, f32, f64 };
enum class ReduceOp : uint8_t { sum, max };

size_t size_of(DataType type);  // bytes of one element
std::string_view name_of(DataType type);

struct OpOptions {
  std::string_view name = {};            // as in the program, e.g. "tp_all_gather"; shown in errors
  std::chrono::milliseconds timeout{0};  // of a wait without progress; 0: the group's own, see set_timeout
  // Of a reduce-scatter's sum; UsageError elsewhere. See there.
  bool accumulate = false;
  int contributors = 0;
};

inline constexpr std::chrono::hours max_timeout{24 * 366};

enum class CallKind : uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, barrier };
std::string_view name_of(CallKind kind);

// One collective call, as a transport gets it. `count` is what the public functions below call count.
struct CollectiveCall {
  CallKind kind = CallKind::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::string_view name = {};
  std::chrono::milliseconds timeout{0};
  bool accumulate = false;  // of a reduce-scatter, as OpOptions says
  int contributors = 0;     // of a reduce-scatter: 1..members; else 0
};

class HelperThread;

class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // in the group, 0..size-1
  int size() const { return static_cast<int>(global_ranks_.size()); }
  const std::vector<int>& global_ranks() const { return global_ranks_; }
  // Time that callers have spent inside blocking collectives so far: what computation did not hide.
  int64_t blocked_ns() const { return blocked_ns_; }
  // Default: 5 minutes. UsageError unless above 0 and at most max_timeout, here and in every operation.
  void set_timeout(std::chrono::milliseconds timeout);

  // In place, `count` elements.
  void all_reduce(void* data, size_t count, DataType type, ReduceOp op = ReduceOp::sum,
                  const OpOptions& = {});
  // Each rank brings `count` elements; output holds size() * count in rank order. Input may be its slot of
  // output.
  void all_gather(const void* input, void* output, size_t count, DataType type, const OpOptions& = {});
  // Input holds size() * count elements; output `count`: this rank's slice of the sum. Output may be that
  // slice.
  // A sum can be a link of a longer one, over more addends than the group has members:
  //   accumulate    output = ((output + x0) + x1) + ...; output must lie outside input;
  //   contributors  only group ranks below it (0: all) bring anything: the others' inputs, which may be null,
  //                 are not read, and not added as zeros either.
  // So a fold over several calls gives the bits of one ascending sum (bf16: rounded once a call).
  void reduce_scatter(const void* input, void* output, size_t count, DataType type,
                      ReduceOp op = ReduceOp::sum, const OpOptions& = {});
  // In place, from group rank `root`.
  void broadcast(void* data, size_t count, DataType type, int root, const OpOptions& = {});
  void barrier(const OpOptions& = {});

  // The same, run in the order of issue by a helper thread that sleeps when idle. Buffers must stay until
  // wait() returns. A blocking collective issued while asynchronous ones are pending runs after them.
  [[nodiscard]] Work all_reduce_async(void* data, size_t count, DataType type, ReduceOp op = ReduceOp::sum,
                                      const OpOptions& = {});
  [[nodiscard]] Work all_gather_async(const void* input, void* output, size_t count, DataType type,
                                      const OpOptions& = {});
  [[nodiscard]] Work reduce_scatter_async(const void* input, void* output, size_t count, DataType type,
                                          ReduceOp op = ReduceOp::sum, const OpOptions& = {});
  [[nodiscard]] Work broadcast_async(void* data, size_t count, DataType type, int root,
                                     const OpOptions& = {});
  [[nodiscard]] Work barrier_async(const OpOptions& = {});

  // Point to point with a group rank (not oneself). A send is buffered: it returns once the data is copied
  // out, and waits only while the mailbox is full; two ranks that send to each other at once never deadlock.
  // A receive must name the size that was sent. A receive may be posted early; it is matched in the order of
  // posting.
  virtual void send(const void* data, size_t count, DataType type, int to, int tag,
                    const OpOptions& = {}) = 0;
  [[nodiscard]] virtual Work irecv(void* data, size_t count, DataType type, int from, int tag,
                                   const OpOptions& = {}) = 0;
  // Returns at once where the mailbox has room; else the helper thread sends on.
  [[nodiscard]] virtual Work isend(const void* data, size_t count, DataType type, int to, int tag,
                                   const OpOptions& = {}) = 0;
  void recv(void* data, size_t count, DataType type, int from, int tag, const OpOptions& = {});

 protected:
  Communicator(std::string name, std::vector<int> global_ranks, int rank);

  virtual void run(const CollectiveCall& call) = 0;  // blocking, one at a time, in order
  void stop_helper();                                // a transport calls it first in its destructor
  HelperThread& helper();
  std::chrono::milliseconds timeout_or_default(const OpOptions& options) const;
  // UsageError where the options hold what only a reduce-scatter takes.
  void refuse_fold(std::string_view kind, const OpOptions& options) const;

 private:
  void check_timeout(std::chrono::milliseconds timeout) const;
  void check_fold(const CollectiveCall& call) const;
  void execute(const CollectiveCall& call);
  Work enqueue(const CollectiveCall& call);
  CollectiveCall call(CallKind kind, const void* input, void* output, size_t count, DataType type,
                      ReduceOp op, int root, const OpOptions& options) const;

  std::string name_;
  std::vector<int> global_ranks_;
  int rank_;
  int64_t blocked_ns_ = 0;
  std::chrono::milliseconds timeout_{std::chrono::minutes(5)};
  std::unique_ptr<HelperThread> helper_;
};

// One rank's view of a run.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Every member calls it with the same name and the same ascending list of global ranks, which contains its
  // own. Groups of the same name and other ranks are distinct; the same call again gives another, independent
  // group.
  virtual std::unique_ptr<Communicator> group(std::string name, std::vector<int> global_ranks) = 0;
  // Ends every wait on every rank with a RunError that names this rank and the reason.
  virtual void abort(std::string_view reason) = 0;
};

}  // namespace lockstep::comm
