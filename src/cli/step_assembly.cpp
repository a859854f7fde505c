#include "cli/step_assembly.hpp"

#include <algorithm>

namespace lockstep::cli {

void StepAssembly::add(const observe::StepRecord& record) {
  if (record.step > given_out_) parts_[record.step].record = record;
}

void StepAssembly::add(const observe::WaitMessage& waits) {
  if (waits.step > given_out_) parts_[waits.step].waits[waits.rank] = waits;
}

std::optional<AssembledStep> StepAssembly::next() {
  if (parts_.empty()) return std::nullopt;
  const Parts& first = parts_.begin()->second;
  if (!first.record || first.waits.size() < ranks_) return std::nullopt;
  return take_first();
}

std::optional<AssembledStep> StepAssembly::next_as_it_is() {
  while (!parts_.empty() && !parts_.begin()->second.record) parts_.erase(parts_.begin());
  if (parts_.empty()) return std::nullopt;
  return take_first();
}

AssembledStep StepAssembly::take_first() {
  auto first = parts_.extract(parts_.begin());
  given_out_ = first.key();
  AssembledStep step;
  step.record = *first.mapped().record;
  std::vector<observe::StepWaits> waits;
  int64_t fullest = 0;
  for (const auto& [rank, message] : first.mapped().waits) {
    step.ranks.push_back(message);
    waits.push_back(message.waits);
    fullest = std::max(fullest, message.resident_bytes);
  }
  if (waits.size() == ranks_) {
    step.record.waits = observe::mean_waits(waits);
    step.record.memory_bytes = fullest;
  }
  return step;
}

}  // namespace lockstep::cli
