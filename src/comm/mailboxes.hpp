// Sends and receives of one member of a group. Each ordered pair has a pipe in shared memory; a message is a
// header and its bytes. Messages that come before their receive is posted wait in the pipe, or, when another
// is wanted first, in this process's own memory; so the order in which tags are received is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/group_guard.hpp"

namespace lockstep::comm {

class Mailboxes : public std::enable_shared_from_this<Mailboxes> {
 public:
  struct Envelope {
    uint64_t count = 0;
    int tag = 0;
    DataType type = DataType::u8;
    bool operator==(const Envelope&) const = default;
    size_t bytes() const { return count * size_of(type); }
  };

  Mailboxes(GroupMemory memory, GroupGuard guard, int rank);

  // One thread at a time per destination. `began_ns`: set to observe::monotonic_ns when the message begins
  // to be copied, which travels with it.
  void send(const void* data, const Envelope& what, int to, std::string_view name,
            std::chrono::milliseconds timeout, std::atomic<int64_t>& began_ns);
  // True if the whole message fits now; throws if the group cannot go on.
  bool has_room(const Envelope& what, int to, std::string_view name) const;
  Work receive(void* data, const Envelope& what, int from, std::string_view name,
               std::chrono::milliseconds timeout);

 private:
  struct Header;
  class Receive;
  struct Arriving {  // a message of which not all bytes have been read
    Envelope what;
    int64_t sent_ns = 0;
    size_t received = 0, padded = 0;  // bytes
    Receive* receive = nullptr;       // where it goes; else to `kept`
    std::vector<std::byte> kept;
  };
  struct Kept {
    Envelope what;
    int64_t sent_ns = 0;
    std::vector<std::byte> data;
  };
  struct Incoming {
    uint64_t read = 0;  // position in the pipe
    uint64_t receives = 0;
    std::list<Receive*> posted;  // never one with the tag of a message in `kept`
    std::deque<Kept> kept;
    std::optional<Arriving> arriving;
  };
  struct Outgoing {
    uint64_t written = 0;
    uint64_t sends = 0;
    // An empty pipe may be wound back to its start: positions below `floor` then hold nothing but the mark
    // that says so, at offset `mark`, which must stay until it is read.
    uint64_t floor = 0;
    uint64_t mark = 0;
  };

  bool is_empty(int to) const;
  bool should_wind_back(const Envelope& what, int to) const;
  void wind_back(int to);
  size_t room(int to) const;
  void wait_for_room(size_t bytes, int to, const Operation& operation);
  void write(const void* data, size_t bytes, int to);
  void publish(int to);

  void read_from(int from, const Operation& operation);  // whatever is there, without waiting; mutex_ held
  void read_from_waiting_senders(const Operation& operation);
  void begin_message(int from, const Operation& operation);
  void read_bytes(int from, size_t available);
  void finish_message(int from, const Operation& operation);
  Receive* take_posted(int from, int tag);  // the earliest posted with that tag, or null
  [[noreturn]] void refuse(int from, const Envelope& sent, const Envelope& expected,
                           const Operation& operation) const;
  void cancel(Receive& receive, int from);
  void copy_out(int from, void* to, size_t bytes);

  GroupMemory memory_;
  GroupGuard guard_;
  int rank_;
  size_t capacity_;
  std::vector<Outgoing> outgoing_;
  std::mutex mutex_;  // of the incoming side; held for copies, never while waiting
  std::vector<Incoming> incoming_;
};

}  // namespace lockstep::comm
