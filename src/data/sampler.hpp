// Which tokens sample i of a run is. The order is keyed by the global sample index alone
// (i = step * global_batch + place in the batch), so any layout of workers reads the same batches.
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.hpp"
#include "data/corpus.hpp"

namespace lockstep::data {

// A keyed bijection of 0..size-1 onto itself that needs no table: a Feistel network over the next power of
// four, walked until it lands inside. Sources: Luby and Rackoff 1988, doi:10.1137/0217022; cycle walking,
// Black and Rogaway 2002, doi:10.1007/3-540-45760-7_9. The round function is Philox; 8 rounds.
class KeyedPermutation {
 public:
  KeyedPermutation(uint64_t size, PhiloxKey key, uint32_t tweak);  // size in 1..2^62; `tweak` is the epoch
  uint64_t operator()(uint64_t index) const;                       // index < size

 private:
  uint64_t encrypt(uint64_t value) const;
  uint64_t size_;
  PhiloxKey key_;
  uint32_t tweak_;
  int half_bits_ = 0;
};

// Windows of a stream: window w is the sequence + 1 tokens from w * sequence. Inputs of different windows do
// not overlap; the last target of a window is the first input of the next. Tokens after the last whole window
// (left_over() of them) are not read.
class Windows {
 public:
  Windows(const TokenStream& stream,
          int64_t sequence);  // keeps a reference; UsageError when there is no window

  int64_t count() const { return count_; }
  int64_t sequence() const { return sequence_; }
  int64_t left_over() const;

  // inputs and targets, each [sequence]; targets are the inputs one token on.
  void fill(int64_t window, std::span<int64_t> inputs, std::span<int64_t> targets) const;

  // Windows first..first+n-1 in order, [n, sequence]: the held-out loss reads these.
  void fill_in_order(int64_t first, int64_t n, std::span<int64_t> inputs, std::span<int64_t> targets) const;

 private:
  const TokenStream& stream_;
  int64_t sequence_;
  int64_t count_;
};

struct SamplePlace {
  int64_t epoch = 0;
  int64_t window = 0;
};

// Shuffled training samples: each window exactly once an epoch, in an order that differs from epoch to epoch.
class Sampler {
 public:
  Sampler(const TokenStream& stream, int64_t sequence, uint64_t seed);  // keeps a reference to the stream

  int64_t windows() const { return windows_.count(); }
  int64_t sequence() const { return windows_.sequence(); }
  SamplePlace place(int64_t sample) const;  // sample >= 0

  // Samples first..first+n-1 of the run, inputs and targets each [n, sequence].
  void fill(int64_t first, int64_t n, std::span<int64_t> inputs, std::span<int64_t> targets) const;

 private:
  Windows windows_;
  PhiloxKey key_;
};

}  // namespace lockstep::data
