#include "base/terminal_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

namespace {

// UTF-8: the bytes of the character that starts at `at`, and its columns.
struct Character {
  size_t bytes = 1;
  size_t columns = 1;
};

Character character(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, 1};
  if (first < 0xE0) return {2, 1};
  if (first >= 0xF0) return {4, 2};
  const unsigned code = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  // CJK punctuation, ideographs, full-width forms.
  const bool wide = (code >= 0x2E80 && code <= 0xA4CF) || (code >= 0xF900 && code <= 0xFAFF) ||
                    (code >= 0xFF00 && code <= 0xFF60);
  return {3, wide ? size_t{2} : size_t{1}};
}

// Closing marks do not begin a line.
bool closes(std::string_view word) {
  for (const std::string_view mark : {"，", "。", "；", "：", "、", "）"}) {
    if (word == mark) return true;
  }
  return false;
}

// What is not broken: a run of narrow characters, or one wide one with closing marks after it.
struct Piece {
  std::string text;
  bool after_space = false;
};

std::vector<Piece> pieces(std::string_view text) {
  std::vector<Piece> out;
  bool space = false, narrow_before = false;
  for (size_t at = 0; at < text.size();) {
    const Character c = character(text, at);
    const std::string_view one = text.substr(at, c.bytes);
    at += c.bytes;
    if (one == " ") {
      space = true;
      continue;
    }
    const bool narrow = c.columns == 1;
    if (!out.empty() && !space && ((narrow && narrow_before) || closes(one))) {
      out.back().text += one;
    } else {
      out.push_back({std::string(one), space});
    }
    narrow_before = narrow;
    space = false;
  }
  return out;
}

}  // namespace

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view one = text.substr(0, std::max<size_t>(length, 1));
    const auto first = static_cast<unsigned char>(one.front());
    const bool control = first < 0x20 || first == 0x7F || (one >= "\u0080" && one <= "\u009F");
    if (length > 0 && (!control || kept.find(one.front()) != std::string_view::npos)) {
      out += one;
    } else {
      for (const char c : one) out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(one.size());
  }
  return out;
}

std::string filled(std::string_view text, size_t most, size_t indent) {
  std::string out;
  for (const std::string& line : wrapped(text, most - indent)) out += std::string(indent, ' ') + line + "\n";
  return out;
}

size_t columns(std::string_view text) {
  size_t sum = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = character(text, at);
    sum += c.columns;
    at += c.bytes;
  }
  return sum;
}

std::vector<std::string> wrapped(std::string_view text, size_t most) {
  std::vector<std::string> lines;
  for (const Piece& piece : pieces(text)) {
    const std::string with_space = (piece.after_space ? " " : "") + piece.text;
    if (!lines.empty() && columns(lines.back()) + columns(with_space) <= most) {
      lines.back() += with_space;
    } else {
      lines.push_back(piece.text);
    }
  }
  return lines;
}

}  // namespace lockstep
