#include "comm/local_communicator.hpp"

#include "base/error.hpp"
#include "comm/helper_thread.hpp"
#include "observe/span.hpp"

namespace lockstep::comm {
namespace {

// A send that the helper makes. It begins when there is room for it, not when the helper takes it up.
class QueuedSend final : public WorkState {
 public:
  QueuedSend(std::shared_ptr<WorkState> task, std::shared_ptr<const std::atomic<int64_t>> began_ns)
      : task_(std::move(task)), began_ns_(std::move(began_ns)) {}
  void wait() override { task_->wait(); }
  bool done() override { return task_->done(); }
  int64_t started_ns() const override { return began_ns_->load(std::memory_order_relaxed); }
  int64_t finished_ns() const override { return task_->finished_ns(); }

 private:
  const std::shared_ptr<WorkState> task_;
  const std::shared_ptr<const std::atomic<int64_t>> began_ns_;
};

}  // namespace

LocalCommunicator::LocalCommunicator(GroupMemory memory, std::string name, std::vector<int> ranks, int rank)
    : Communicator(std::move(name), std::move(ranks), rank),
      guard_(memory, this->name(), global_ranks()),
      rounds_(memory, guard_, rank),
      mailboxes_(std::make_shared<Mailboxes>(memory, guard_, rank)),
      queued_sends_(static_cast<size_t>(size())) {}

LocalCommunicator::~LocalCommunicator() {
  stop_helper();
  sender_.reset();
}

void LocalCommunicator::check_peer(int peer) const {
  if (peer < 0 || peer >= size() || peer == rank())
    throw UsageError("group '" + name() + "': rank " + std::to_string(rank()) +
                     " cannot send to or receive from " + std::to_string(peer) + " in a group of " +
                     std::to_string(size()));
}

void LocalCommunicator::send(const void* data, size_t count, DataType type, int to, int tag,
                             const OpOptions& options) {
  check_peer(to);
  refuse_fold("send", options);
  const Mailboxes::Envelope what{count, tag, type};
  if (queued_sends_[static_cast<size_t>(to)].load(std::memory_order_acquire) != 0)
    return send_later(data, what, to, options).wait();
  std::atomic<int64_t> began_ns{0};
  mailboxes_->send(data, what, to, options.name, timeout_or_default(options), began_ns);
}

Work LocalCommunicator::isend(const void* data, size_t count, DataType type, int to, int tag,
                              const OpOptions& options) {
  check_peer(to);
  refuse_fold("isend", options);
  const Mailboxes::Envelope what{count, tag, type};
  if (queued_sends_[static_cast<size_t>(to)].load(std::memory_order_acquire) != 0 ||
      !mailboxes_->has_room(what, to, options.name))
    return send_later(data, what, to, options);
  std::atomic<int64_t> began_ns{0};
  mailboxes_->send(data, what, to, options.name, timeout_or_default(options), began_ns);
  return Work::over(began_ns, observe::monotonic_ns());
}

Work LocalCommunicator::send_later(const void* data, const Mailboxes::Envelope& what, int to,
                                   const OpOptions& options) {
  if (!sender_) sender_ = std::make_unique<HelperThread>();
  std::atomic<int>& queued = queued_sends_[static_cast<size_t>(to)];
  queued.fetch_add(1, std::memory_order_acq_rel);
  const auto timeout = timeout_or_default(options);
  const auto began_ns = std::make_shared<std::atomic<int64_t>>(0);
  auto task = sender_->enqueue([=, this, &queued, name = std::string(options.name)] {
    struct Leave {
      std::atomic<int>& count;
      ~Leave() { count.fetch_sub(1, std::memory_order_acq_rel); }
    } leave{queued};
    mailboxes_->send(data, what, to, name, timeout, *began_ns);
  });
  return Work(std::make_shared<QueuedSend>(std::move(task), began_ns));
}

Work LocalCommunicator::irecv(void* data, size_t count, DataType type, int from, int tag,
                              const OpOptions& options) {
  check_peer(from);
  refuse_fold("irecv", options);
  return mailboxes_->receive(data, {count, tag, type}, from, options.name, timeout_or_default(options));
}

}  // namespace lockstep::comm
