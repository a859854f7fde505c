// The byte tokenizer: a token is a byte.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

using Token = int32_t;

struct ByteTokenizer {
  static constexpr int64_t vocab = 256;

  static std::vector<Token> encode(std::string_view text);
  static std::string decode(std::span<const Token> tokens);  // UsageError when a token is outside 0..255
};

}  // namespace lockstep::data
