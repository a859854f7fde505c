#include "train/message_box.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "train/wait_ignoring_errors.hpp"

namespace lockstep::train {

using parallel::Action;
using parallel::ActionKind;

MessageBox::MessageBox(comm::Communicator* pp, const nn::Context& context, WaitMeter& meter,
                       int micro_batches)
    : pp_(pp), context_(context), meter_(meter), micro_batches_(micro_batches) {}

MessageBox::~MessageBox() {
  // A step that ended early: the transport may still read what is sent.
  for (Pending& send : sends_) wait_ignoring_errors(send.work);
}

// One number for each message that can be under way to a rank: direction, chunk at the receiver, micro-batch.
int MessageBox::tag(ActionKind receive, int chunk, int micro_batch) const {
  const int direction = receive == ActionKind::receive_forward ? 0 : 1;
  return (chunk * micro_batches_ + micro_batch) * 2 + direction;
}

size_t MessageBox::add_record(const char* name, const Action& action, int64_t bytes) {
  const int64_t now = observe::monotonic_ns();
  records_.push_back({name, nn::Stream::pp, bytes, now, now, action.chunk, action.micro_batch});
  return records_.size() - 1;
}

void MessageBox::post_receive(const Action& action) {
  const model::ShardShape& s = context_.shape;
  at::Tensor tensor = context_.empty({s.tokens_sharded, s.hidden});
  const int id = tag(action.kind, action.chunk, action.micro_batch);
  const size_t record =
      add_record(parallel::to_string(action.kind), action, static_cast<int64_t>(tensor.nbytes()));
  comm::Work work =
      pp_->irecv(tensor.data_ptr(), static_cast<size_t>(tensor.numel()), nn::data_type(tensor.scalar_type()),
                 action.peer, id, {.name = parallel::to_string(action.kind)});
  receives_[id] = {std::move(tensor), std::move(work), record};
}

void MessageBox::send(const Action& action, at::Tensor tensor) {
  std::erase_if(sends_, [&](const Pending& p) {
    const bool done = p.work.done();
    if (done) book_message(p.work);
    return done;
  });
  const ActionKind receive =
      action.kind == ActionKind::send_forward ? ActionKind::receive_forward : ActionKind::receive_backward;
  const size_t record =
      add_record(parallel::to_string(action.kind), action, static_cast<int64_t>(tensor.nbytes()));
  comm::Work work =
      pp_->isend(tensor.data_ptr(), static_cast<size_t>(tensor.numel()), nn::data_type(tensor.scalar_type()),
                 action.peer, tag(receive, action.peer_chunk, action.micro_batch),
                 {.name = parallel::to_string(action.kind)});
  // Copying out, where it is done at once, is time of the computation.
  records_[record].end_ns = observe::monotonic_ns();
  meter_.waits().exposed.pp += WaitMeter::seconds(records_[record].end_ns - records_[record].start_ns);
  sends_.push_back({std::move(tensor), std::move(work), record});
}

// From where the later of both ends was ready to where its data was in place; at the sender until it was
// copied out.
void MessageBox::book_message(const comm::Work& work) {
  const int64_t start = std::max(work.started_ns(), work.sent_ns());
  if (work.finished_ns() > start) {
    meter_.waits().under_way.pp += WaitMeter::seconds(work.finished_ns() - start);
  }
}

at::Tensor MessageBox::take(ActionKind receive, int chunk, int micro_batch) {
  auto node = receives_.extract(tag(receive, chunk, micro_batch));
  if (node.empty()) {
    throw RunError("the program computes chunk " + std::to_string(chunk) + " of micro-batch " +
                   std::to_string(micro_batch) + " without a " + parallel::to_string(receive) + " before it");
  }
  Pending& pending = node.mapped();
  nn::OpRecord& record = records_[pending.record];
  record.start_ns = observe::monotonic_ns();
  meter_.wait("wait_pp", &observe::ExposedSeconds::pp, chunk, micro_batch, [&] { pending.work.wait(); });
  record.end_ns = observe::monotonic_ns();
  book_message(pending.work);
  if (context_.log != nullptr && context_.log->checking()) {
    nn::OpScope scope(context_.log, record.name, nn::Stream::pp, record.bytes);
    scope.check(pending.tensor);
  }
  return std::move(pending.tensor);
}

void MessageBox::run_in_order(const char* name, int64_t bytes, const std::function<void()>& collective) {
  const size_t record = add_record(name, {}, bytes);
  meter_.wait("wait_pp", &observe::ExposedSeconds::pp, -1, -1, collective);
  records_[record].end_ns = observe::monotonic_ns();
  meter_.waits().under_way.pp += WaitMeter::seconds(records_[record].end_ns - records_[record].start_ns);
}

void MessageBox::finish_step() {
  for (Pending& send : sends_) {
    meter_.wait("wait_pp", &observe::ExposedSeconds::pp, -1, -1, [&] { send.work.wait(); });
    book_message(send.work);
  }
  sends_.clear();
  if (context_.log != nullptr) {
    for (const nn::OpRecord& record : records_) context_.log->add(record);
  }
  records_.clear();
}

}  // namespace lockstep::train
