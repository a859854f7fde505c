// CSV as RFC 4180 has it, as far as the file of measurements needs it.
#include "validate/csv.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/error.hpp"

namespace lockstep::validate {
namespace {

using Cells = std::vector<std::string>;

std::string quoted(const std::string& cell) {
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string message_of(const std::string& text) {
  try {
    parse_csv(text, "file.csv");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

RC_GTEST_PROP(Csv, WhatIsWrittenIsReadAgain, ()) {
  const auto letters = rc::gen::element('a', '7', ' ', ',', '"', '\n', '\r', '\xC3', '\t');
  const auto width = *rc::gen::inRange<size_t>(1, 6);
  const auto rows = *rc::gen::container<std::vector<Cells>>(
      rc::gen::container<Cells>(width, rc::gen::container<std::string>(letters)));
  const std::string end = *rc::gen::element<std::string>("\n", "\r\n");
  std::string text;
  for (size_t i = 0; i < width; ++i) text += (i > 0 ? "," : "") + std::string("c") + std::to_string(i);
  for (const Cells& row : rows) {
    text += end;
    for (size_t i = 0; i < width; ++i) {
      // Quotes may be left out where nothing needs them, and an empty line is no row.
      const bool plain =
          row[i].find_first_of(",\"\r\n") == std::string::npos && (width > 1 || !row[i].empty());
      text += (i > 0 ? "," : "") + (plain && *rc::gen::arbitrary<bool>() ? row[i] : quoted(row[i]));
    }
  }
  if (*rc::gen::arbitrary<bool>()) text += end;
  const CsvTable table = parse_csv(text, "file.csv");
  RC_ASSERT(table.columns.size() == width);
  RC_ASSERT(table.rows.size() == rows.size());
  for (size_t i = 0; i < rows.size(); ++i) RC_ASSERT(table.rows[i].cells == rows[i]);
}

TEST(Csv, RowsKnowTheLineOnWhichTheyBegin) {
  const CsvTable table = parse_csv(
      "\xEF\xBB\xBF"
      "a,b\r\n\r\n1,\"two\r\nlines\"\r\n,\r\n",
      "file.csv");
  EXPECT_EQ(table.columns, (Cells{"a", "b"}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].line, 3);
  EXPECT_EQ(table.rows[0].cells, (Cells{"1", "two\r\nlines"}));
  EXPECT_EQ(table.rows[1].line, 5);
  EXPECT_EQ(table.rows[1].cells, (Cells{"", ""}));
}

TEST(Csv, RowsMayBeShorterOrLongerThanTheHeader) {
  const CsvTable table = parse_csv("a,b\n1\n1,2,3\n", "file.csv");
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].cells.size(), 1u);
  EXPECT_EQ(table.rows[1].cells.size(), 3u);
}

TEST(Csv, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(message_of(""), "file.csv:1: there is no header: the first line names the columns");
  EXPECT_EQ(message_of("\n\n"), "file.csv:1: there is no header: the first line names the columns");
  EXPECT_EQ(message_of("a,,b\n"), "file.csv:1: column 2 has no name");
  EXPECT_EQ(message_of("a,b,a\n"), "file.csv:1: there are two columns \"a\"");
  EXPECT_EQ(message_of("a\n1\n\"open\nfor long\n"),
            "file.csv:3: a quoted field begins here and is never closed");
  EXPECT_EQ(message_of("a\n\"x\ny\"z\n"),
            "file.csv:3: text behind a closing quote; write a quote inside a quoted field twice");
}

}  // namespace
}  // namespace lockstep::validate
