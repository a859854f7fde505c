// Text for a terminal: how wide it is, where it may be broken, and what a terminal would obey made visible.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The widest line of what the program prints.
inline constexpr size_t terminal_columns = 100;

// Bytes of the UTF-8 character at the start of `text`; 0 when it is not valid (Unicode 15, table 3-7).
size_t utf8_length(std::string_view text);

// Control characters (C0 without those of `kept`, DEL, C1) and bytes that are no UTF-8 as \xNN each: what a
// user's file or argument holds is shown, and no terminal obeys it.
std::string escaped(std::string_view text, std::string_view kept = "");

// Columns on a terminal: a Chinese character has two.
size_t columns(std::string_view text);

// Broken into lines of at most so many columns, between words and between Chinese characters. A word that is
// longer stands alone.
std::vector<std::string> wrapped(std::string_view text, size_t most);
// The same as one text, each line `indent` columns in and ended; `most` counts the indent.
std::string filled(std::string_view text, size_t most = terminal_columns, size_t indent = 0);

}  // namespace lockstep
