// A command's flags: declared once, found by CLI11, explained by --help. The one unit that sees CLI11 is
// flags.cpp, because that header is a good second of compile time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"

namespace lockstep::cli {

struct NumberRange {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
};

class Flags {
 public:
  // `command` is a name of the feature table; `example` goes to the foot of --help.
  Flags(std::string_view command, std::string example);

  // What a flag's value is stored in holds its default; references must outlive parse(). `value` is its name
  // in --help ("DIR"). A flag may stand once, a list any number of times.
  Flags& required(std::string& to, std::string name, std::string explanation);  // by position
  Flags& optional(std::string& to, std::string name, std::string explanation);  // by position, the last
  Flags& text(std::string& to, std::string flag, std::string value, std::string explanation);
  Flags& number(int64_t& to, std::string flag, std::string value, std::string explanation, NumberRange = {});
  Flags& number(std::optional<int64_t>& to, std::string flag, std::string value, std::string explanation,
                NumberRange = {});
  // Comma-separated whole numbers.
  Flags& numbers(std::vector<int64_t>& to, std::string flag, std::string value, std::string explanation,
                 NumberRange = {});
  // Comma-separated whole numbers and ranges LOW-HIGH, both ends included; a number is a range of one.
  Flags& ranges(std::vector<NumberRange>& to, std::string flag, std::string value, std::string explanation,
                NumberRange = {});
  Flags& list(std::vector<std::string>& to, std::string flag, std::string value, std::string explanation);
  Flags& toggle(bool& to, std::string flag, std::string explanation);

  // False when --help was asked for, and printed. UsageError names the nearest flag for one that is unknown,
  // and says so where it is known and not built.
  bool parse(const Arguments& arguments) const;

 private:
  struct Flag {
    std::string name, value, explanation, default_text;
    bool repeats = false;
    bool may_be_absent = false;  // by position
    std::function<void(const std::string&)> take;
  };
  std::string help() const;
  void take_positional(const std::vector<std::string>& words) const;
  void refuse_value(const std::string& argument) const;  // of a flag that takes none
  [[noreturn]] void refuse_flag(const std::string& name) const;
  Flags& add(std::string flag, std::string value, std::string explanation, std::string default_text,
             bool repeats, std::function<void(const std::string&)> take);

  std::string command_, example_;
  std::vector<Flag> positional_, flags_;
};

}  // namespace lockstep::cli
