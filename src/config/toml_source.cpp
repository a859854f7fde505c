#include "config/toml_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace {
// toml++ 3.3 asserts what some malformed files break (a table header cut short); without assertions it would
// read past them. Such a file is the user's, so the assertion becomes an exception, in every build type.
struct ParserLost {};
[[noreturn]] void lose_parser() { throw ParserLost(); }
}  // namespace
#undef NDEBUG
#define TOML_ASSERT(expression) (static_cast<bool>(expression) ? void() : lose_parser())
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

namespace lockstep::config {
namespace {

std::optional<double> number_of(const toml::node& node) {
  if (node.is_integer()) return static_cast<double>(**node.as_integer());
  if (node.is_floating_point()) return **node.as_floating_point();
  return std::nullopt;
}

Value records_value(const toml::array& array) {
  std::vector<std::pair<toml::source_position, std::pair<std::string, double>>> fields;
  Records records;
  for (const toml::node& item : array) {
    fields.clear();
    for (const auto& [key, node] : *item.as_table()) {
      const std::optional<double> number = number_of(node);
      if (!number) return OtherValue{"a list of tables that hold other things than numbers"};
      fields.push_back({key.source().begin, {std::string(key.str()), *number}});
    }
    std::stable_sort(fields.begin(), fields.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.line, a.first.column) < std::pair(b.first.line, b.first.column);
    });
    records.emplace_back();
    for (const auto& [place, field] : fields) records.back().push_back(field);
  }
  return records;
}

Value list_value(const toml::array& array) {
  std::vector<std::string> words;
  for (const toml::node& item : array) {
    if (!item.is_string()) return OtherValue{"a list of other things than strings or tables"};
    words.push_back(**item.as_string());
  }
  return words;
}

Value value_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::integer:
      return **node.as_integer();
    case toml::node_type::floating_point:
      return **node.as_floating_point();
    case toml::node_type::boolean:
      return **node.as_boolean();
    case toml::node_type::string:
      return **node.as_string();
    case toml::node_type::array:
      if (node.is_array_of_tables()) return records_value(*node.as_array());
      return list_value(*node.as_array());
    case toml::node_type::table:
      return OtherValue{"a table"};
    default:
      return OtherValue{"a date or time"};
  }
}

// No table of a run file holds tables, so nothing deeper than one level is looked into.
Document flatten(const toml::table& root, const std::string& name) {
  Document document;
  std::vector<std::pair<toml::source_position, Entry>> entries;
  const auto where = [&](const toml::key& key) {
    return fmt::format("{}:{}", name, key.source().begin.line);
  };
  const auto add = [&](const std::string& table, const toml::key& key, const toml::node& node) {
    entries.push_back({key.source().begin, {table, std::string(key.str()), value_of(node), where(key)}});
  };
  for (const auto& [key, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      add("", key, node);
      continue;
    }
    document.sections.push_back({std::string(key.str()), where(key)});
    for (const auto& [inner_key, inner] : *table) add(std::string(key.str()), inner_key, inner);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.line, a.first.column) < std::pair(b.first.line, b.first.column);
  });
  for (auto& [position, entry] : entries) document.entries.push_back(std::move(entry));
  return document;
}

// Dotted keys nest one table a part, and the library walks them recursively: a line of many thousands of
// parts would overflow its stack. No key here has more than two parts.
void refuse_deep_keys(std::string_view text, const std::string& name) {
  constexpr int most_dots = 100;
  int dots = 0, line = 1;
  char before = '\n';
  for (const char c : text) {
    if (c == '\n') ++line;
    if (c == '.' && before != '.') {
      if (++dots > most_dots) throw UsageError(fmt::format("{}:{}: a key of too many parts", name, line));
    } else if (c == '.' || c == '\n' || c == '=' || c == ',' || c == '{' || c == '}') {
      dots = 0;
    }
    before = c;
  }
}

// The value alone, when `text` is exactly one TOML value.
std::optional<Value> parse_value(const std::string& text) {
  try {
    const toml::table table = toml::parse("value = " + text);
    if (table.size() != 1 || table.get("value") == nullptr)
      return std::nullopt;  // a line break and more keys
    return value_of(*table.get("value"));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  } catch (const ParserLost&) {
    return std::nullopt;
  }
}

// The line on which the parser loses its way: the first that makes it do so when the text ends there.
int line_of_loss(std::string_view text) {
  int line = 1;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', end + 1), ++line) {
    try {
      (void)toml::parse(text.substr(0, end + 1));
    } catch (const ParserLost&) {
      return line;
    } catch (const toml::parse_error&) {
      // A value or string that goes on below.
    }
  }
  return line;
}

}  // namespace

Document parse_toml(std::string_view text, const std::string& name) {
  refuse_deep_keys(text, name);
  try {
    return flatten(toml::parse(text, name), name);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw UsageError(
        fmt::format("{}:{}:{}: not valid TOML: {}", name, at.line, at.column, error.description()));
  } catch (const ParserLost&) {
    throw UsageError(
        fmt::format("{}:{}:1: not valid TOML: this line cannot be understood", name, line_of_loss(text)));
  }
}

Entry parse_override(const std::string& text) {
  const std::string where = fmt::format("--set {}", shortened(text));
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    throw UsageError(fmt::format("{}: an override is written table.key=value", where));
  }
  const auto trimmed = [](const std::string& part) {
    const size_t first = part.find_first_not_of(" \t");
    return first == std::string::npos ? "" : part.substr(first, part.find_last_not_of(" \t") - first + 1);
  };
  const std::string path = trimmed(text.substr(0, equals));
  const std::string written = text.substr(equals + 1);
  if (path.empty()) throw UsageError(fmt::format("{}: an override is written table.key=value", where));
  refuse_deep_keys(written, where);

  Entry entry;
  const size_t dot = path.find('.');
  entry.table = dot == std::string::npos ? "" : path.substr(0, dot);
  entry.key = dot == std::string::npos ? path : path.substr(dot + 1);
  entry.where = where;
  const std::optional<Value> value = parse_value(written);
  if (value.has_value()) {
    entry.value = *value;
  } else if (parse_value(to_literal(written)).has_value()) {
    entry.value = written;
  } else {
    throw UsageError(fmt::format("--set {}: the value is not UTF-8 text", path));
  }
  return entry;
}

}  // namespace lockstep::config
