#include "data/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

constexpr uint32_t feistel_rounds = 8;

// The caller's own mistake, not the user's: still told, in release builds too.
void require(bool holds, const char* rule) {
  if (!holds) throw RunError(fmt::format("sampler: {}", rule));
}

}  // namespace

KeyedPermutation::KeyedPermutation(uint64_t size, PhiloxKey key, uint32_t tweak)
    : size_(size), key_(key), tweak_(tweak) {
  require(size >= 1 && size <= uint64_t{1} << 62, "a permutation of 1 to 2^62 values");
  // The smallest 4^half_bits >= size: below four times `size` from size 2 on, so a walk takes four tries at
  // most on average. At least one bit a half.
  half_bits_ = std::max((static_cast<int>(std::bit_width(size - 1)) + 1) / 2, 1);
}

uint64_t KeyedPermutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint32_t round = 0; round < feistel_rounds; ++round) {
    // half_bits_ is at most 31, so a half fits one counter word.
    const PhiloxCounter mixed = philox4x32({static_cast<uint32_t>(right), round, tweak_, 0}, key_);
    const uint64_t next = left ^ (mixed[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

uint64_t KeyedPermutation::operator()(uint64_t index) const {
  require(index < size_, "the index is outside the permutation");
  uint64_t value = encrypt(index);
  // A permutation of the larger set walks in cycles, so from an index inside it comes back inside.
  while (value >= size_) value = encrypt(value);
  return value;
}

Windows::Windows(const TokenStream& stream, int64_t sequence) : stream_(stream), sequence_(sequence) {
  if (sequence < 1) throw UsageError(fmt::format("train.sequence = {}: must be 1 or more.", sequence));
  const auto tokens = static_cast<int64_t>(stream.tokens.size());
  count_ = std::max<int64_t>(tokens - 1, 0) / sequence;
  if (count_ > 0) return;
  throw UsageError(
      fmt::format("{} tokens of text give no window of {} (train.sequence + 1): give more text or a shorter "
                  "sequence.",
                  tokens, sequence + 1));
}

int64_t Windows::left_over() const {
  return static_cast<int64_t>(stream_.tokens.size()) - (count_ * sequence_ + 1);
}

void Windows::fill(int64_t window, const SequenceSpans& spans) const {
  const auto length = static_cast<size_t>(sequence_);
  require(window >= 0 && window < count_, "the window is outside the stream");
  require(spans.inputs.size() == length && spans.targets.size() == length,
          "inputs and targets hold one sequence");
  const Token* tokens = stream_.tokens.data() + window * sequence_;
  std::copy_n(tokens, length, spans.inputs.begin());
  std::copy_n(tokens + 1, length, spans.targets.begin());
  if (!spans.document_starts.empty()) tell_documents_apart(window, spans);
}

void Windows::tell_documents_apart(int64_t window, const SequenceSpans& spans) const {
  require(spans.document_starts.size() == static_cast<size_t>(sequence_),
          "document starts hold one sequence");
  const int64_t begin = window * sequence_;
  const std::vector<int64_t>& begins = stream_.document_begins;
  auto next = std::upper_bound(begins.begin(), begins.end(), begin);  // the next document's first token
  int64_t start = 0;
  for (int64_t i = 0; i < sequence_; ++i) {
    spans.document_starts[static_cast<size_t>(i)] = start;
    if (next == begins.end() || *next != begin + i + 1) continue;
    spans.targets[static_cast<size_t>(i)] = -1;
    start = i + 1;
    ++next;
  }
}

Sampler::Sampler(const TokenStream& stream, int64_t sequence, uint64_t seed)
    : windows_(stream, sequence), key_(philox_key(seed, "sample order")) {}

SamplePlace Sampler::place(int64_t sample) const {
  require(sample >= 0, "samples count from 0");
  const int64_t epoch = sample / windows_.count();
  require(epoch <= std::numeric_limits<uint32_t>::max(), "fewer than 2^32 epochs");
  const KeyedPermutation order(static_cast<uint64_t>(windows_.count()), key_, static_cast<uint32_t>(epoch));
  return {epoch, static_cast<int64_t>(order(static_cast<uint64_t>(sample % windows_.count())))};
}

void Sampler::fill(int64_t sample, const SequenceSpans& spans) const {
  windows_.fill(place(sample).window, spans);
}

}  // namespace lockstep::data
