#include "config/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lockstep::config {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const unsigned code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20 || code == 0x7f) {
      out += fmt::format("\\u{:04X}", code);
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

// The shortest digits that read back exactly; TOML tells a float from an integer by its point or exponent.
std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == std::trunc(value) && std::fabs(value) < 1e7) return fmt::format("{:.1f}", value);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  const size_t e = text.find('e');
  if (e == std::string::npos) return text.find('.') == std::string::npos ? text + ".0" : text;
  // "3e-04" and "1e+30" as "3e-4" and "1e30".
  const bool negative = text[e + 1] == '-';
  const size_t digits = std::min(text.find_first_not_of("+-0", e + 1), text.size() - 1);
  return text.substr(0, e + 1) + (negative ? "-" : "") + text.substr(digits);
}

// Records do not tell integers from other numbers.
std::string record_number(double value) {
  const bool whole = value == std::trunc(value) && std::fabs(value) < 1e7;
  return whole ? fmt::format("{}", static_cast<int64_t>(value)) : number(value);
}

struct Literal {
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return number(value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(const OtherValue& value) const { return value.what; }
  std::string operator()(const std::vector<std::string>& values) const {
    std::string out = "[";
    for (const std::string& value : values) {
      if (out.size() > 1) out += ", ";
      out += quoted(value);
    }
    out += ']';
    return out;
  }
  std::string operator()(const Records& records) const {
    std::string out = "[";
    for (const Record& record : records) {
      if (out.size() > 1) out += ", ";
      out += "{ ";
      for (size_t i = 0; i < record.size(); ++i) {
        const auto& [name, value] = record[i];
        out += (i > 0 ? ", " : "") + to_key(name) + " = " + record_number(value);
      }
      out += record.empty() ? "}" : " }";
    }
    return out + "]";
  }
};

}  // namespace

std::string to_literal(const Value& value) { return std::visit(Literal{}, value); }

std::string to_key(const std::string& name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? name : quoted(name);
}

std::string shortened(const std::string& literal) {
  constexpr size_t most = 80;
  if (literal.size() <= most) return literal;
  size_t cut = most;
  while (cut > 0 && (static_cast<unsigned char>(literal[cut]) & 0xC0) == 0x80)
    --cut;  // not inside a character
  return literal.substr(0, cut) + "...";
}

}  // namespace lockstep::config
