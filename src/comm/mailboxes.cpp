#include "comm/mailboxes.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/reduce.hpp"
#include "observe/span.hpp"

namespace lockstep::comm {
namespace {

constexpr size_t line = 64;
constexpr size_t padded(size_t bytes) { return (bytes + line - 1) / line * line; }
// An empty pipe starts over at its beginning once it has come this far: the same few pages stay in the cache.
constexpr size_t warm_bytes = size_t{256} << 10;

std::string text_of(const Mailboxes::Envelope& what) {
  return std::to_string(what.count) + " " + std::string(name_of(what.type)) + " with tag " +
         std::to_string(what.tag);
}

}  // namespace

struct alignas(line) Mailboxes::Header {
  Envelope what;
  uint64_t skip = 0;    // not a message: so many bytes, this header included, hold nothing
  int64_t sent_ns = 0;  // when its sender began to copy it, on the clock that all processes share
};
static_assert(sizeof(Mailboxes::Envelope) + 16 <= line);  // a header is one cache line

// A posted receive; it is finished in place while someone reads from the pipe.
class Mailboxes::Receive final : public WorkState {
 public:
  Receive(std::shared_ptr<Mailboxes> owner, void* data_, const Envelope& what_, int from,
          std::string_view name, uint64_t sequence, std::chrono::milliseconds timeout)
      : data(static_cast<std::byte*>(data_)),
        what(what_),
        owner_(std::move(owner)),
        from_(from),
        name_(name),
        sequence_(sequence),
        timeout_(timeout),
        posted_ns_(observe::monotonic_ns()) {}
  ~Receive() override { owner_->cancel(*this, from_); }

  void wait() override {
    const Operation op = operation();
    Bell& bell = owner_->memory_.member(owner_->rank_).bell;
    owner_->guard_.wait(
        bell, op, [&] { return look(op); },
        [&] { return owner_->guard_.rank_text(from_) + " (no message of " + text_of(what) + ")"; });
  }
  bool done() override {
    try {
      const Operation op = operation();
      if (look(op)) return true;
      owner_->guard_.check(op);
      return false;
    } catch (const RunError&) {
      return true;  // wait() says why
    }
  }

  int64_t started_ns() const override { return posted_ns_; }
  int64_t finished_ns() const override {
    const std::lock_guard lock(owner_->mutex_);
    return finished_ns_;
  }
  int64_t sent_ns() const override {
    const std::lock_guard lock(owner_->mutex_);
    return sent_ns_;
  }
  // Under the owner's mutex, as `finished`:
  void finish(int64_t sent_ns) {
    sent_ns_ = sent_ns;
    finished_ns_ = observe::monotonic_ns();
  }
  bool finished() const { return finished_ns_ != 0; }

  std::byte* const data;
  const Envelope what;

 private:
  Operation operation() const { return {"recv", name_, sequence_, timeout_}; }
  bool look(const Operation& op) {
    const std::lock_guard lock(owner_->mutex_);
    if (!finished()) owner_->read_from(from_, op);
    if (!finished()) owner_->read_from_waiting_senders(op);
    return finished();
  }

  int64_t sent_ns_ = 0, finished_ns_ = 0;
  const std::shared_ptr<Mailboxes> owner_;
  const int from_;
  const std::string name_;
  const uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const int64_t posted_ns_;
};

Mailboxes::Mailboxes(GroupMemory memory, GroupGuard guard, int rank)
    : memory_(std::move(memory)),
      guard_(std::move(guard)),
      rank_(rank),
      capacity_(mailbox_bytes(memory_.members())),
      outgoing_(static_cast<size_t>(memory_.members())),
      incoming_(static_cast<size_t>(memory_.members())) {}

// ---- sending

bool Mailboxes::is_empty(int to) const {
  return memory_.mailbox(rank_, to).read.load() == outgoing_[static_cast<size_t>(to)].written;
}

size_t Mailboxes::room(int to) const {
  const Outgoing& out = outgoing_[static_cast<size_t>(to)];
  const uint64_t read = memory_.mailbox(rank_, to).read.load();
  return read >= out.floor ? capacity_ - (out.written - read) : out.mark - (out.written - out.floor);
}

// Keeps messages in the same few pages, which stay in the cache.
bool Mailboxes::should_wind_back(const Envelope& what, int to) const {
  const size_t offset = outgoing_[static_cast<size_t>(to)].written % capacity_;
  return offset > warm_bytes && padded(what.bytes()) + sizeof(Header) <= offset && is_empty(to);
}

void Mailboxes::wind_back(int to) {
  Outgoing& out = outgoing_[static_cast<size_t>(to)];
  const Header mark{.what = {}, .skip = capacity_ - out.written % capacity_};
  out.mark = out.written % capacity_;
  out.floor = out.written + mark.skip;
  write(&mark, sizeof mark, to);
  out.written = out.floor;
}

bool Mailboxes::has_room(const Envelope& what, int to, std::string_view name) const {
  guard_.check({"isend", name, outgoing_[static_cast<size_t>(to)].sends, {}});
  return should_wind_back(what, to) || padded(what.bytes()) + sizeof(Header) <= room(to);
}

void Mailboxes::send(const void* data, const Envelope& what, int to, std::string_view name,
                     std::chrono::milliseconds timeout, std::atomic<int64_t>& began_ns) {
  Outgoing& out = outgoing_[static_cast<size_t>(to)];
  const Operation operation{"send", name, out.sends++, timeout};
  guard_.check(operation);
  if (should_wind_back(what, to)) wind_back(to);
  wait_for_room(sizeof(Header), to, operation);
  const Header header{.what = what, .sent_ns = observe::monotonic_ns()};
  began_ns.store(header.sent_ns, std::memory_order_relaxed);
  write(&header, sizeof header, to);
  const auto* bytes = static_cast<const std::byte*>(data);
  size_t left = what.bytes();
  while (left > 0) {
    wait_for_room(std::min(padded(out.written + left) - out.written, capacity_ / 4), to, operation);
    const size_t n = std::min(left, room(to));
    write(bytes, n, to);
    bytes += n;
    left -= n;
  }
  out.written = padded(out.written);
  publish(to);
}

void Mailboxes::write(const void* data, size_t bytes, int to) {
  Outgoing& out = outgoing_[static_cast<size_t>(to)];
  std::byte* ring = memory_.mailbox_data(rank_, to);
  const size_t offset = out.written % capacity_;
  const size_t first = std::min(bytes, capacity_ - offset);
  copy_bytes(ring + offset, data, first);
  copy_bytes(ring, static_cast<const std::byte*>(data) + first, bytes - first);
  out.written += bytes;
}

void Mailboxes::publish(int to) {
  memory_.mailbox(rank_, to).written.store(outgoing_[static_cast<size_t>(to)].written,
                                           std::memory_order_release);
  memory_.member(to).bell.ring();
}

void Mailboxes::wait_for_room(size_t bytes, int to, const Operation& operation) {
  Mailbox& box = memory_.mailbox(rank_, to);
  const auto fits = [&] { return bytes <= room(to); };
  if (fits()) return;
  box.sender_waits.store(1);
  publish(to);  // wakes it: it may be waiting for someone else, and makes room for us all the same
  guard_.wait(
      memory_.member(rank_).bell, operation,
      [&] {
        // Two members may be sending to each other: reading what came makes room for the other.
        const std::lock_guard lock(mutex_);
        read_from_waiting_senders(operation);
        return fits();
      },
      [&] { return guard_.rank_text(to) + " (its mailbox is full)"; });
  box.sender_waits.store(0);
}

// ---- receiving

Work Mailboxes::receive(void* data, const Envelope& what, int from, std::string_view name,
                        std::chrono::milliseconds timeout) {
  std::shared_ptr<Receive> receive;  // before the lock: its destructor takes it
  const std::lock_guard lock(mutex_);
  Incoming& in = incoming_[static_cast<size_t>(from)];
  const Operation operation{"recv", name, in.receives++, timeout};
  guard_.check(operation);
  const auto kept = std::find_if(in.kept.begin(), in.kept.end(),
                                 [&](const Kept& message) { return message.what.tag == what.tag; });
  if (kept != in.kept.end() && kept->what != what) refuse(from, kept->what, what, operation);
  receive =
      std::make_shared<Receive>(shared_from_this(), data, what, from, name, operation.sequence, timeout);
  if (kept == in.kept.end()) {
    in.posted.push_back(receive.get());
  } else {
    copy_bytes(receive->data, kept->data.data(), what.bytes());
    receive->finish(kept->sent_ns);
    in.kept.erase(kept);
  }
  return Work(receive);
}

void Mailboxes::read_from(int from, const Operation& operation) {
  Incoming& in = incoming_[static_cast<size_t>(from)];
  Mailbox& box = memory_.mailbox(from, rank_);
  for (;;) {
    const uint64_t available = box.written.load(std::memory_order_acquire) - in.read;
    if (available == 0) return;
    if (in.arriving)
      read_bytes(from, available);
    else
      begin_message(from, operation);
    if (in.arriving && in.arriving->received == in.arriving->padded) finish_message(from, operation);
    box.read.store(in.read);
    if (box.sender_waits.load() != 0) memory_.member(from).bell.ring();
  }
}

void Mailboxes::read_from_waiting_senders(const Operation& operation) {
  for (int r = 0; r < memory_.members(); ++r)
    if (r != rank_ && memory_.mailbox(r, rank_).sender_waits.load() != 0) read_from(r, operation);
}

void Mailboxes::begin_message(int from, const Operation& operation) {
  Incoming& in = incoming_[static_cast<size_t>(from)];
  Header header;
  copy_out(from, &header, sizeof header);
  if (header.skip != 0) {
    in.read += header.skip - sizeof header;
    return;
  }
  Arriving& message = in.arriving.emplace();
  message.what = header.what;
  message.sent_ns = header.sent_ns;
  message.padded = padded(header.what.bytes());
  message.receive = take_posted(from, header.what.tag);
  if (message.receive != nullptr && message.receive->what == header.what) return;
  // Whoever goes on asking after a refusal reads on, so the message needs its place also then.
  message.kept.resize(header.what.bytes());
  const Receive* other = std::exchange(message.receive, nullptr);
  if (other != nullptr) refuse(from, header.what, other->what, operation);
}

void Mailboxes::read_bytes(int from, size_t available) {
  Incoming& in = incoming_[static_cast<size_t>(from)];
  Arriving& message = *in.arriving;
  std::byte* data = message.receive != nullptr ? message.receive->data : message.kept.data();
  const size_t bytes = message.what.bytes();
  const size_t n = std::min(available, message.padded - message.received);
  const size_t real = std::min(n, bytes - std::min(bytes, message.received));
  copy_out(from, data + message.received, real);
  in.read += n - real;
  message.received += n;
}

void Mailboxes::finish_message(int from, const Operation& operation) {
  Incoming& in = incoming_[static_cast<size_t>(from)];
  Arriving message = std::move(*in.arriving);
  in.arriving.reset();
  if (message.receive == nullptr) {  // a receive may have been posted since it began
    message.receive = take_posted(from, message.what.tag);
    if (message.receive == nullptr) {
      in.kept.push_back({message.what, message.sent_ns, std::move(message.kept)});
      return;
    }
    if (message.receive->what != message.what) refuse(from, message.what, message.receive->what, operation);
    copy_bytes(message.receive->data, message.kept.data(), message.what.bytes());
  }
  message.receive->finish(message.sent_ns);
}

Mailboxes::Receive* Mailboxes::take_posted(int from, int tag) {
  auto& posted = incoming_[static_cast<size_t>(from)].posted;
  const auto first =
      std::find_if(posted.begin(), posted.end(), [&](const Receive* r) { return r->what.tag == tag; });
  if (first == posted.end()) return nullptr;
  Receive* receive = *first;
  posted.erase(first);
  return receive;
}

void Mailboxes::refuse(int from, const Envelope& sent, const Envelope& expected,
                       const Operation& operation) const {
  guard_.fail(operation, "does not match: " + guard_.rank_text(from) + " sent " + text_of(sent) + ", " +
                             guard_.rank_text(rank_) + " expects " + text_of(expected));
}

void Mailboxes::cancel(Receive& receive, int from) {
  const std::lock_guard lock(mutex_);
  Incoming& in = incoming_[static_cast<size_t>(from)];
  in.posted.remove(&receive);
  if (!in.arriving || in.arriving->receive != &receive) return;
  Arriving& message = *in.arriving;
  message.receive = nullptr;
  message.kept.resize(message.what.bytes());
  copy_bytes(message.kept.data(), receive.data, std::min(message.received, message.what.bytes()));
}

void Mailboxes::copy_out(int from, void* to, size_t bytes) {
  Incoming& in = incoming_[static_cast<size_t>(from)];
  const std::byte* ring = memory_.mailbox_data(from, rank_);
  const size_t offset = in.read % capacity_;
  const size_t first = std::min(bytes, capacity_ - offset);
  copy_bytes(to, ring + offset, first);
  copy_bytes(static_cast<std::byte*>(to) + first, ring, bytes - first);
  in.read += bytes;
}

}  // namespace lockstep::comm
