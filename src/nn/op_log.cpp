#include "nn/op_log.hpp"

namespace lockstep::nn {

OpScope::OpScope(OpLog* log, std::string_view name, Stream stream, int64_t message_bytes)
    : log_(log != nullptr && log->recording_ ? log : nullptr) {
  if (!log_) return;
  record_.name = name;
  record_.stream = stream;
  record_.bytes = message_bytes;
  record_.chunk = log_->chunk_;
  record_.micro_batch = log_->micro_batch_;
  record_.start_ns = observe::monotonic_ns();
}

OpScope::~OpScope() {
  if (!log_) return;
  record_.end_ns = observe::monotonic_ns();
  log_->records_.push_back(record_);
}

}  // namespace lockstep::nn
