// Widths, breaks and what a terminal would obey.
#include "base/terminal_text.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TerminalText, CountsChineseAsTwoColumnsAndBreaksBetweenItsCharacters) {
  EXPECT_EQ(columns("abc"), 3u);
  EXPECT_EQ(columns("权重，810 GB。"), 6u + 6u + 2u);
  EXPECT_EQ(columns("µ✓"), 2u);
  EXPECT_EQ(wrapped("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("一二三四", 4), (std::vector<std::string>{"一二", "三四"}));
  EXPECT_EQ(wrapped("一二。三", 5), (std::vector<std::string>{"一", "二。", "三"}))
      << "no line begins with a stop";
  EXPECT_EQ(wrapped("用 ab 做", 100), std::vector<std::string>{"用 ab 做"});
}

TEST(TerminalText, FillsLinesBehindAnIndent) {
  EXPECT_EQ(filled("one two three", 9, 2), "  one two\n  three\n");
  EXPECT_EQ(filled("", 9, 2), "");
}

// Unicode 15, table 3-7: overlong forms, surrogates and what lies beyond U+10FFFF are not valid.
TEST(TerminalText, WhatATerminalWouldObeyIsShown) {
  EXPECT_EQ(escaped("H100 \u00B5 \u6743"), "H100 \u00B5 \u6743");
  EXPECT_EQ(escaped("\x1B[2J\r\a\x7F"), "\\x1B[2J\\x0D\\x07\\x7F");
  EXPECT_EQ(escaped("a\nb\tc"), "a\\x0Ab\\x09c");
  EXPECT_EQ(escaped("a\nb\tc\r", "\n\t"), "a\nb\tc\\x0D");
  EXPECT_EQ(escaped("\u009B31m"), "\\xC2\\x9B31m") << "CSI in one character";
  EXPECT_EQ(escaped("\xFF\xC0\xAF"), "\\xFF\\xC0\\xAF");
  EXPECT_EQ(escaped("\xED\xA0\x80"), "\\xED\\xA0\\x80");
  EXPECT_EQ(escaped("\xF4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");
  EXPECT_EQ(escaped("\xE6\x9D"), "\\xE6\\x9D") << "cut off";
  EXPECT_EQ(escaped(std::string_view("\0", 1), "\n"), "\\x00");
}

}  // namespace
}  // namespace lockstep
