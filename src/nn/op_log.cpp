#include "nn/op_log.hpp"

#include <algorithm>

namespace lockstep::nn {

void OpLog::set_checking(bool on) {
  checking_ = on;
  active_ = recording_ || checking_;
  if (!on) return;
  checked_ = 0;
  first_non_finite_.reset();
}

OpScope::OpScope(OpLog* log, std::string_view name, Stream stream)
    : log_(log != nullptr && log->active_ ? log : nullptr) {
  if (!log_) return;
  record_.name = name;
  record_.stream = stream;
  record_.chunk = log_->chunk_;
  record_.micro_batch = log_->micro_batch_;
  record_.start_ns = observe::monotonic_ns();
}

OpScope::OpScope(OpLog* log, std::string_view name, Stream stream, int64_t message_bytes)
    : OpScope(log, name, stream) {
  record_.bytes = message_bytes;
  communication_ = true;
}

OpScope::~OpScope() {
  if (!log_) return;
  if (log_->recording_) {
    record_.end_ns = observe::monotonic_ns();
    log_->records_.push_back(record_);
  }
  if (log_->checking_) find_non_finite();
}

void OpScope::find_non_finite() const {
  const int64_t order = log_->checked_++;
  if (log_->first_non_finite_) return;
  const bool finite = std::all_of(results_.begin(), results_.end(), [](const at::Tensor& tensor) {
    return at::isfinite(tensor).all().item<bool>();
  });
  if (finite) return;
  log_->first_non_finite_ =
      NonFiniteOp{record_.name, log_->layer_, record_.chunk, record_.micro_batch, communication_, order};
}

}  // namespace lockstep::nn
