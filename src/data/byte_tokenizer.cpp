#include "data/byte_tokenizer.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace lockstep::data {

std::vector<Token> ByteTokenizer::encode(std::string_view text) {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const Token> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (const Token token : tokens) {
    if (token < 0 || token >= vocab) {
      throw UsageError(fmt::format(
          "token {} is not a byte: the byte tokenizer has 0 to 255. Use the model's own tokenizer.", token));
    }
    text += static_cast<char>(token);
  }
  return text;
}

}  // namespace lockstep::data
