// A value of the run file, free of the TOML library, and how it is written down.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::config {

// Something that no key takes: a date, a table where a value belongs, a list of anything but strings
// or tables of numbers.
struct OtherValue {
  std::string what;  // "a date"
};

// An inline table of numbers, in the order in which they stand.
using Record = std::vector<std::pair<std::string, double>>;
using Records = std::vector<Record>;

using Value = std::variant<int64_t, double, bool, std::string, std::vector<std::string>, Records, OtherValue>;

// As TOML, in one line: reads back to exactly the same value. An OtherValue comes out as its description.
std::string to_literal(const Value& value);

// A key, or part of one, as TOML writes it: bare when its characters allow, else quoted.
std::string to_key(const std::string& name);

// Cuts a literal to a length that fits a message.
std::string shortened(const std::string& literal);

}  // namespace lockstep::config
