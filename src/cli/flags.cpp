#include "cli/flags.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/terminal_text.hpp"
#include "cli/output.hpp"

namespace lockstep::cli {

namespace {

int64_t whole_number(const std::string& flag, std::string_view text, NumberRange range) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError(fmt::format("{}: \"{}\" is not a whole number", flag, text));
  }
  if (value < range.low) throw UsageError(fmt::format("{}: {} is less than {}", flag, value, range.low));
  if (value > range.high) throw UsageError(fmt::format("{}: {} is more than {}", flag, value, range.high));
  return value;
}

// "7", or "0-7".
NumberRange number_range(const std::string& flag, std::string_view text, NumberRange range) {
  const size_t dash = text.find('-', 1);  // one in front is a sign
  const int64_t low = whole_number(flag, text.substr(0, dash), range);
  if (dash == std::string_view::npos) return {low, low};
  const int64_t high = whole_number(flag, text.substr(dash + 1), range);
  if (high < low) throw UsageError(fmt::format("{}: \"{}\" ends before it begins", flag, text));
  return {low, high};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

}  // namespace

Flags::Flags(std::string_view command, std::string example)
    : command_(command), example_(std::move(example)) {}

Flags& Flags::add(std::string flag, std::string value, std::string explanation, std::string default_text,
                  bool repeats, std::function<void(const std::string&)> take) {
  flags_.push_back({std::move(flag), std::move(value), std::move(explanation), std::move(default_text),
                    repeats, false, std::move(take)});
  return *this;
}

Flags& Flags::required(std::string& to, std::string name, std::string explanation) {
  positional_.push_back({std::move(name), "", std::move(explanation), "", false, false,
                         [&to](const std::string& text) { to = text; }});
  return *this;
}

Flags& Flags::optional(std::string& to, std::string name, std::string explanation) {
  required(to, std::move(name), std::move(explanation));
  positional_.back().may_be_absent = true;
  return *this;
}

Flags& Flags::text(std::string& to, std::string flag, std::string value, std::string explanation) {
  return add(std::move(flag), std::move(value), std::move(explanation), to, false,
             [&to](const std::string& given) { to = given; });
}

Flags& Flags::number(int64_t& to, std::string flag, std::string value, std::string explanation,
                     NumberRange range) {
  return add(flag, std::move(value), std::move(explanation), std::to_string(to), false,
             [&to, flag, range](const std::string& given) { to = whole_number(flag, given, range); });
}

Flags& Flags::number(std::optional<int64_t>& to, std::string flag, std::string value, std::string explanation,
                     NumberRange range) {
  return add(flag, std::move(value), std::move(explanation), to ? std::to_string(*to) : "", false,
             [&to, flag, range](const std::string& given) { to = whole_number(flag, given, range); });
}

Flags& Flags::numbers(std::vector<int64_t>& to, std::string flag, std::string value, std::string explanation,
                      NumberRange range) {
  return add(flag, std::move(value), std::move(explanation), fmt::format("{}", fmt::join(to, ",")), false,
             [&to, flag, range](const std::string& given) {
               to.clear();
               for (const std::string_view part : split(given, ','))
                 to.push_back(whole_number(flag, part, range));
             });
}

Flags& Flags::ranges(std::vector<NumberRange>& to, std::string flag, std::string value,
                     std::string explanation, NumberRange range) {
  return add(flag, std::move(value), std::move(explanation), "", false,
             [&to, flag, range](const std::string& given) {
               to.clear();
               for (const std::string_view part : split(given, ','))
                 to.push_back(number_range(flag, part, range));
             });
}

Flags& Flags::list(std::vector<std::string>& to, std::string flag, std::string value,
                   std::string explanation) {
  return add(std::move(flag), std::move(value), std::move(explanation), "", true,
             [&to](const std::string& given) { to.push_back(given); });
}

Flags& Flags::toggle(bool& to, std::string flag, std::string explanation) {
  return add(std::move(flag), "", std::move(explanation), "", false,
             [&to](const std::string&) { to = true; });
}

bool Flags::parse(const Arguments& arguments) const {
  CLI::App app;
  app.allow_extras();
  app.set_help_flag("-h,--help");
  std::vector<std::vector<std::string>> given(flags_.size());
  std::vector<CLI::Option*> options;
  for (size_t i = 0; i < flags_.size(); ++i) {
    const Flag& flag = flags_[i];
    options.push_back(flag.value.empty() ? app.add_flag(flag.name) : app.add_option(flag.name, given[i]));
    if (flag.value.empty()) continue;
    options.back()->type_name(flag.value)->allow_extra_args(false);  // the next word may be RUN.toml
  }
  for (const std::string& argument : arguments) refuse_value(argument);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    print(help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; `lockstep {} --help` lists the flags", error.what(), command_));
  }
  take_positional(app.remaining());
  for (size_t i = 0; i < flags_.size(); ++i) {
    const Flag& flag = flags_[i];
    if (flag.value.empty() && options[i]->count() > 0) flag.take("");
    if (given[i].size() > 1 && !flag.repeats) {
      throw UsageError(
          fmt::format("{} is given {} times: {}", flag.name, given[i].size(), fmt::join(given[i], ", ")));
    }
    for (const std::string& text : given[i]) {
      if (text.empty())
        throw UsageError(fmt::format("{}: the value is empty; give {}", flag.name, flag.value));
      flag.take(text);
    }
  }
  return true;
}

// "--json=no": CLI11 would take it for --json.
void Flags::refuse_value(const std::string& argument) const {
  const size_t equals = argument.find('=');
  const std::string name = argument.substr(0, equals);
  const bool takes_none =
      name == "--help" || std::any_of(flags_.begin(), flags_.end(), [&](const Flag& flag) {
        return flag.value.empty() && flag.name == name;
      });
  if (equals == std::string::npos || !takes_none) return;
  throw UsageError(
      fmt::format("{}: the flag takes no value; write {} alone, or leave it out", argument, name));
}

// Words that no flag took.
void Flags::take_positional(const std::vector<std::string>& words) const {
  for (const std::string& word : words) {
    if (word.size() > 1 && word.starts_with("-")) refuse_flag(word.substr(0, word.find('=')));
  }
  for (size_t i = 0; i < positional_.size(); ++i) {
    if (i >= words.size()) {
      if (positional_[i].may_be_absent) return;
      throw UsageError(fmt::format("`lockstep {}` needs {}: {}\n  example: {}", command_, positional_[i].name,
                                   positional_[i].explanation, example_));
    }
    positional_[i].take(words[i]);
  }
  if (words.size() > positional_.size()) {
    throw UsageError(fmt::format("`lockstep {}` does not know what to do with \"{}\"", command_,
                                 words[positional_.size()]));
  }
}

void Flags::refuse_flag(const std::string& name) const {
  if (find_feature(command_ + " " + name) != nullptr) {
    throw UsageError(
        fmt::format("`lockstep {} {}` is not built yet; docs/status.md lists what works", command_, name));
  }
  std::vector<std::string> known;
  for (const Flag& flag : flags_) known.push_back(flag.name);
  known.emplace_back("--help");
  throw UsageError(fmt::format("`lockstep {}` has no flag {}; the nearest is {}\n  flags: {}", command_, name,
                               nearest_name(name, known), fmt::join(known, ", ")));
}

std::string Flags::help() const {
  std::string text = filled(fmt::format("lockstep {}: {}", command_, find_feature(command_)->does));
  text += fmt::format("\n  lockstep {}", command_);
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Flag& flag : positional_) {
    text += flag.may_be_absent ? fmt::format(" [{}]", flag.name) : " " + flag.name;
    rows.emplace_back(flag.name, flag.explanation);
  }
  text += " [options]\n\n";
  for (const Flag& flag : flags_) {
    std::string explanation = flag.explanation;
    if (flag.repeats) explanation += "; may be repeated";
    if (!flag.default_text.empty()) explanation += fmt::format(" (default: {})", flag.default_text);
    rows.emplace_back(flag.value.empty() ? flag.name : flag.name + " " + flag.value, explanation);
  }
  rows.emplace_back("--help", "prints this");
  size_t width = 0;
  for (const auto& [name, explanation] : rows) width = std::max(width, name.size());
  for (const auto& [name, explanation] : rows) {
    const std::string explained = filled(explanation, terminal_columns, width + 4);
    text += fmt::format("  {:<{}}  {}", name, width, explained.substr(width + 4));
  }
  text += fmt::format("\nexample:\n  {}\n", example_);
  return text;
}

}  // namespace lockstep::cli
