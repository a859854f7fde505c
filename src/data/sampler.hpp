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

// Where one sequence goes, each [sequence]. document_starts may be empty: then documents are not told apart.
struct SequenceSpans {
  std::span<int64_t> inputs;
  std::span<int64_t> targets;
  std::span<int64_t> document_starts;
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

  // Targets are the inputs one token on. Where document_starts are asked for, they are the places in the
  // window at which each input's document begins (0 where it began before), and a target of another document
  // than its input is -1. The newline that joins two documents belongs to the one before it.
  void fill(int64_t window, const SequenceSpans& spans) const;

 private:
  void tell_documents_apart(int64_t window, const SequenceSpans& spans) const;

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

  void fill(int64_t sample, const SequenceSpans& spans) const;  // its window, as Windows::fill gives it

 private:
  Windows windows_;
  PhiloxKey key_;
};

}  // namespace lockstep::data
