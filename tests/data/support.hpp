// Streams whose tokens say where they stand, cut into documents, and what their windows hold, told slowly.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "config/run_file.hpp"
#include "data/corpus.hpp"

namespace lockstep::data::tests {

inline TokenStream counting_stream(int64_t tokens) {
  TokenStream stream;
  stream.tokens.resize(static_cast<size_t>(tokens));
  std::iota(stream.tokens.begin(), stream.tokens.end(), 0);
  return stream;
}

// With document borders drawn anywhere, also at the ends of windows.
inline TokenStream drawn_stream(int64_t tokens, int64_t sequence) {
  TokenStream stream = counting_stream(tokens);
  stream.document_begins = {0};
  for (int64_t at = 1; at < tokens; ++at) {
    const int64_t one_in = at % sequence <= 1 ? 3 : 7;
    if (*rc::gen::inRange<int64_t>(0, one_in) == 0) stream.document_begins.push_back(at);
  }
  return stream;
}

struct WholeSequence {
  std::vector<int64_t> inputs, targets, document_starts;

  bool operator==(const WholeSequence&) const = default;
};

// A window of a counting stream, each token's document looked up by itself.
inline WholeSequence slow_window(const TokenStream& stream, int64_t sequence, int64_t window, bool masked) {
  const auto document_begin = [&](int64_t token) {
    int64_t begin = 0;
    for (const int64_t other : stream.document_begins) {
      if (other <= token) begin = std::max(begin, other);
    }
    return begin;
  };
  WholeSequence whole;
  const int64_t first = window * sequence;
  for (int64_t at = first; at < first + sequence; ++at) {
    const bool border = masked && document_begin(at) != document_begin(at + 1);
    whole.inputs.push_back(at);
    whole.targets.push_back(border ? -1 : at + 1);
    if (masked) whole.document_starts.push_back(std::max<int64_t>(document_begin(at) - first, 0));
  }
  return whole;
}

}  // namespace lockstep::data::tests
