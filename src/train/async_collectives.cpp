#include "train/async_collectives.hpp"

#include "train/wait_ignoring_errors.hpp"

namespace lockstep::train {

AsyncCollectives::~AsyncCollectives() {
  for (Pending& pending : pending_) wait_ignoring_errors(pending.work);
}

void AsyncCollectives::start(Use use, const char* name, int chunk, int64_t bytes, comm::Work work,
                             std::vector<at::Tensor> tensors) {
  const int64_t now = observe::monotonic_ns();
  records_.push_back({name, nn::Stream::dp, bytes, now, now, chunk, -1});
  pending_.push_back({use, std::move(work), records_.size() - 1, std::move(tensors)});
}

void AsyncCollectives::run_in_order(const char* name, int64_t bytes,
                                    const std::function<void()>& collective) {
  const int64_t start = observe::monotonic_ns();
  meter_.wait("wait_dp", &observe::ExposedSeconds::dp, -1, -1, collective);
  const int64_t end = observe::monotonic_ns();
  meter_.waits().under_way.dp += WaitMeter::seconds(end - start);
  records_.push_back({name, nn::Stream::dp, bytes, start, end, -1, -1});
}

void AsyncCollectives::wait(Pending& pending) {
  nn::OpRecord& record = records_[pending.record];
  meter_.wait("wait_dp", &observe::ExposedSeconds::dp, record.chunk, -1, [&] { pending.work.wait(); });
  record.start_ns = pending.work.started_ns();
  record.end_ns = pending.work.finished_ns();
  meter_.waits().under_way.dp += WaitMeter::seconds(record.end_ns - record.start_ns);
  if (context_.log == nullptr || !context_.log->checking()) return;
  nn::OpScope scope(context_.log, record.name, nn::Stream::dp, record.bytes);
  for (const at::Tensor& tensor : pending.tensors) scope.check(tensor);
}

void AsyncCollectives::wait(Use use, int chunk) {
  const auto wanted = [&](const Pending& p) {
    return p.use == use && (chunk < 0 || records_[p.record].chunk == chunk);
  };
  for (Pending& pending : pending_) {
    if (wanted(pending)) wait(pending);
  }
  std::erase_if(pending_, wanted);
}

void AsyncCollectives::finish_step() {
  for (const Use use : {Use::unshard, Use::reduction, Use::gather}) wait(use);
  if (context_.log != nullptr) {
    for (const nn::OpRecord& record : records_) context_.log->add(record);
  }
  records_.clear();
}

}  // namespace lockstep::train
