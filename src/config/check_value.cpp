// What can be said about one value without the other keys: type, range, words.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/edit_distance.hpp"
#include "base/units.hpp"
#include "config/records.hpp"
#include "config/schema.hpp"

namespace lockstep::config {
namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + to_literal(word);
  return out;
}

// The default, or nothing for a key that has none.
std::string default_literal(const Key& key) {
  return key.need == Need::optional ? to_literal(read_key(key, RunFile{})) : "";
}

std::string bound(double value, bool whole) {
  if (whole) return format_thousands(static_cast<int64_t>(value));
  return to_literal(value);
}

std::string range_rule(const Rule& rule, bool whole) {
  if (rule.above_low)
    return fmt::format("must be above {} and at most {}", rule.low, bound(rule.high, whole));
  return fmt::format("must be from {} to {}", bound(rule.low, whole), bound(rule.high, whole));
}

// A number that a string spells, or the truth of a boolean: what the person may have meant.
std::optional<double> spelled_number(const Value& value) {
  if (const bool* truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
  const std::string* text = std::get_if<std::string>(&value);
  if (text == nullptr) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc{} || end != text->data() + text->size()) return std::nullopt;
  return number;
}

std::optional<double> number_of(const Value& value) {
  if (const int64_t* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const double* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

bool in_range(const Rule& rule, double number) {
  return (rule.above_low ? number > rule.low : number >= rule.low) && number <= rule.high;  // false for nan
}

// Literal of the number nearest to `number` that the rule allows and that is built.
std::string nearest_number(const Key& key, std::optional<double> number, bool whole) {
  if (!number.has_value() || std::isnan(*number)) return default_literal(key);
  const Rule& rule = key.rule;
  if (rule.above_low && *number <= rule.low) return default_literal(key);  // an open end has no nearest value
  double nearest = std::clamp(whole ? std::round(*number) : *number, rule.low, rule.high);
  if (rule.built.has_value()) nearest = std::clamp(nearest, rule.built->first, rule.built->second);
  return whole ? to_literal(static_cast<int64_t>(nearest)) : to_literal(nearest);
}

Verdict check_number(const Key& key, const Value& value, bool whole) {
  const Rule& rule = key.rule;
  const std::string* word = std::get_if<std::string>(&value);
  if (word != nullptr && contains(rule.later, *word)) {
    return {"not built yet", nearest_number(key, std::nullopt, whole)};
  }
  const std::optional<double> number = number_of(value);
  if (!number.has_value() || (whole && !std::holds_alternative<int64_t>(value))) {
    const std::optional<double> meant = number.has_value() ? number : spelled_number(value);
    return {whole ? "must be an integer" : "must be a number", nearest_number(key, meant, whole)};
  }
  if (!in_range(rule, *number)) return {range_rule(rule, whole), nearest_number(key, number, whole)};
  const bool built =
      !rule.built.has_value() || (*number >= rule.built->first && *number <= rule.built->second);
  if (!built) return {"not built yet", nearest_number(key, number, whole)};
  return {};
}

Verdict check_boolean(const Key& key, const Value& value) {
  if (std::holds_alternative<bool>(value)) return {};
  std::string meant = default_literal(key);
  const std::string* word = std::get_if<std::string>(&value);
  if (word != nullptr) {
    const std::vector<std::string> words = {"true", "false", "yes", "no", "on", "off"};
    const std::string nearest = nearest_name(*word, words);
    meant = nearest == "true" || nearest == "yes" || nearest == "on" ? "true" : "false";
  } else if (const std::optional<double> number = number_of(value)) {
    meant = *number != 0 ? "true" : "false";
  }
  return {"must be true or false", meant};
}

// A name made of what `text` has of letters, digits and -_., able to be a folder's.
std::string as_file_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || (!name.empty() && (c == '-' || c == '_' || c == '.'))) name += c;
    if (c == ' ' && !name.empty()) name += '-';
    if (name.size() == 100) break;
  }
  return name.empty() ? "run" : name;
}

// Without control characters: those of ASCII, and U+0080 to U+009F.
std::string without_control(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    if (byte(i) == 0xC2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xA0) {
      ++i;
    } else if (byte(i) >= 0x20 && byte(i) != 0x7F) {
      out += text[i];
    }
  }
  return out;
}

Verdict check_word(const Key& key, const std::string& word) {
  const Rule& rule = key.rule;
  if (rule.printable && without_control(word) != word) {
    const std::string plain = without_control(word);
    return {"must hold no control characters", to_literal(plain.empty() ? std::string("unnamed") : plain)};
  }
  if (rule.file_name) {
    const std::string name = as_file_name(word);
    if (name == word) return {};
    return {"must be at most 100 letters, digits, '-', '_' and '.', a letter or digit first",
            to_literal(name)};
  }
  if (word.empty() && rule.may_be_empty) return {};
  if (rule.words.empty()) {
    return word.empty() ? Verdict{"must not be empty", to_literal(std::string("unnamed"))} : Verdict{};
  }
  if (contains(rule.words, word)) return {};
  const std::string fix = to_literal(nearest_name(word, rule.words));
  if (rule.others_later || contains(rule.later, word)) {
    // A known word has no likeness to go by: what the program does by default is nearest.
    const std::string usual = default_literal(key);
    return {"not built yet", usual.empty() || usual == "\"\"" ? fix : usual};
  }
  return {"must be one of " + listed(rule.words), fix};
}

Verdict check_string(const Key& key, const Value& value) {
  if (const std::string* word = std::get_if<std::string>(&value)) return check_word(key, *word);
  // A number or truth without quotes, or a list of one string.
  std::string meant;
  const auto* list = std::get_if<std::vector<std::string>>(&value);
  if (list != nullptr) {
    meant = list->size() == 1 ? list->front() : "";
  } else if (!std::holds_alternative<OtherValue>(value)) {
    meant = to_literal(value);
  }
  if (meant.empty()) return {"must be a string", default_literal(key)};
  const Verdict unquoted = check_word(key, meant);
  return {"must be a string", unquoted.rule.empty() ? to_literal(meant) : unquoted.fix};
}

// What `list` becomes when each item is the nearest known word, each once.
std::string nearest_list(const Rule& rule, const std::vector<std::string>& list) {
  std::vector<std::string> nearest;
  for (const std::string& item : list) {
    const std::string word = rule.words.empty() ? item : nearest_name(item, rule.words);
    if (!word.empty() && !contains(nearest, word)) nearest.push_back(word);
  }
  return to_literal(nearest);
}

std::string short_words(const Rule& rule) {
  std::vector<std::string> words;
  for (const auto& [word, stands_for] : rule.short_forms) words.push_back(word);
  return words.empty() ? "" : listed(words) + " or ";
}

std::string list_rule(const Rule& rule) {
  return fmt::format("must be {}a list of {}, each once", short_words(rule),
                     rule.words.empty() ? "strings" : listed(rule.words));
}

Verdict check_list(const Key& key, const Value& value) {
  const Rule& rule = key.rule;
  if (const std::string* word = std::get_if<std::string>(&value)) {
    std::vector<std::string> words = rule.words;
    for (const auto& [form, stands_for] : rule.short_forms) {
      if (form == *word) return {};
      words.push_back(form);
    }
    const std::string nearest = words.empty() ? *word : nearest_name(*word, words);
    const bool is_form = !rule.words.empty() && !contains(rule.words, nearest);
    return {list_rule(rule), is_form ? to_literal(nearest) : nearest_list(rule, {nearest})};
  }
  const auto* list = std::get_if<std::vector<std::string>>(&value);
  if (list == nullptr) return {list_rule(rule), default_literal(key)};
  const std::string nearest = nearest_list(rule, *list);
  if (nearest == to_literal(*list)) return {};
  for (const auto& [form, stands_for] : rule.short_forms) {
    if (*list == stands_for) return {list_rule(rule), to_literal(form)};
  }
  return {list_rule(rule), nearest};
}

struct Check {
  const Key& key;
  const Value& value;

  Verdict operator()(std::monostate) const { return {"not built yet", ""}; }
  Verdict operator()(int64_t*) const { return check_number(key, value, true); }
  Verdict operator()(double*) const { return check_number(key, value, false); }
  Verdict operator()(bool*) const { return check_boolean(key, value); }
  Verdict operator()(std::vector<std::string>*) const { return check_list(key, value); }
  template <class Entry>
  Verdict operator()(std::vector<Entry>*) const {
    return check_records(key.rule.fields, value);
  }
  template <class StringOrEnum>
  Verdict operator()(StringOrEnum*) const {
    return check_string(key, value);
  }
};

struct TypeName {
  const Rule& rule;

  std::string operator()(std::monostate) const { return "not built yet"; }
  std::string operator()(int64_t*) const { return "integer"; }
  std::string operator()(double*) const { return "number"; }
  std::string operator()(bool*) const { return "true or false"; }
  std::string operator()(std::vector<std::string>*) const {
    return short_words(rule) + "list of " + (rule.words.empty() ? "strings" : listed(rule.words));
  }
  template <class Entry>
  std::string operator()(std::vector<Entry>*) const {
    std::string names;
    for (const RecordField& field : rule.fields) names += (names.empty() ? "" : ", ") + field.name;
    return "list of {" + names + "}";
  }
  template <class StringOrEnum>
  std::string operator()(StringOrEnum*) const {
    return rule.words.empty() ? "string" : "one of " + listed(rule.words);
  }
};

std::string need_text(const Key& key) {
  switch (key.need) {
    case Need::required:
      return "required";
    case Need::required_or_preset:
      return "required unless a preset is named";
    default:
      return "default " + default_literal(key);
  }
}

}  // namespace

Verdict check_value(const Key& key, const Value& value) {
  RunFile unused;  // the field's type is all that matters
  return std::visit(Check{key, value}, key.field(unused));
}

std::string describe_schema() {
  std::string out;
  std::string table;
  RunFile unused;
  for (const Key& key : schema()) {
    if (key.table != table) out += fmt::format("\n[{}]\n", table = key.table);
    const std::string type = std::visit(TypeName{key.rule}, key.field(unused));
    out += fmt::format("{:<24} {}{}\n", key.name, type, key.is_built() ? "; " + need_text(key) : "");
    out += fmt::format("{:<24} {}\n", "", key.sentence);
  }
  out += "\nNot built yet:";
  for (const std::string& later : later_tables()) out += fmt::format(" [{}]", later);
  return out + "\n";
}

}  // namespace lockstep::config
