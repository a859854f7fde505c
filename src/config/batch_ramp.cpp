#include "config/batch_ramp.hpp"

#include <algorithm>
#include <charconv>

namespace lockstep::config {
namespace {

std::optional<int64_t> positive(const char* begin, const char* end) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc{} || stop != end || value < 1 || value > 1'000'000'000'000) return std::nullopt;
  return value;
}

}  // namespace

std::optional<BatchStage> parse_batch_stage(const std::string& entry) {
  const size_t colon = entry.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const char* text = entry.data();
  const auto sequences = positive(text, text + colon);
  const auto last_step = positive(text + colon + 1, text + entry.size());
  if (!sequences || !last_step) return std::nullopt;
  return BatchStage{*sequences, *last_step};
}

std::vector<BatchStage> batch_stages(const TrainConfig& train) {
  std::vector<BatchStage> stages;
  for (const std::string& entry : train.batch_ramp) stages.push_back(parse_batch_stage(entry).value());
  stages.push_back({train.global_batch, std::max(train.steps, stages.empty() ? 0 : stages.back().last_step)});
  return stages;
}

int64_t batch_of_step(const TrainConfig& train, int64_t step) {
  for (const BatchStage& stage : batch_stages(train)) {
    if (step <= stage.last_step) return stage.sequences;
  }
  return train.global_batch;
}

int64_t sequences_before_step(const TrainConfig& train, int64_t step) {
  int64_t sequences = 0, done = 0;
  for (const BatchStage& stage : batch_stages(train)) {
    const int64_t end = std::min(step - 1, stage.last_step);
    sequences += std::max<int64_t>(end - done, 0) * stage.sequences;
    done = std::max(done, end);
  }
  return sequences + (step - 1 - done) * train.global_batch;
}

}  // namespace lockstep::config
