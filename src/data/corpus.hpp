// The text a run learns from and the text it is judged on, split by document.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/byte_tokenizer.hpp"

namespace lockstep::data {

// One part: its documents joined by one newline byte, as one contiguous stream.
struct TokenStream {
  std::vector<Token> tokens;
  std::vector<std::string> documents;    // names (file name without ".txt"), in order
  std::vector<int64_t> document_begins;  // first token of each document
};

struct Corpus {
  TokenStream training;
  TokenStream held_out;  // empty when no document is held out
};

struct CorpusOptions {
  std::filesystem::path text{};  // a folder of .txt files, taken in order of file name, or one .txt file
  std::vector<std::string> held_out{};  // names of documents, with or without ".txt"
  int64_t sequence = 0;                 // each part must give at least one window of sequence + 1 tokens
  bool need_held_out = true;            // refuse an empty held-out part
};

// UsageError, saying what to change, when the text is missing, unreadable or empty, a held-out name is
// unknown (names the nearest) or given twice, or a part is absent or too short for one window.
Corpus load_corpus(const CorpusOptions& options);

}  // namespace lockstep::data
