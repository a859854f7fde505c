// Standard output and error of the commands. What cannot be written is a failure of the command.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fwd.hpp"

namespace lockstep::cli {

void print(std::string_view text);      // to standard output; RunError when it does not take it
void print_json(const Json& document);  // one document, indented, with a line feed
void log(std::string_view text);        // a line to standard error, unchecked
// "lockstep: TEXT" to standard error, escaped but for line ends and tabs.
void complain(std::string_view text);
void finish_output();  // flushes standard output; RunError when that fails

// Padded to `width` columns (UTF-8 code points), on the left for figures and on the right for text.
std::string right(std::string_view text, size_t width);
std::string left(std::string_view text, size_t width);

}  // namespace lockstep::cli
