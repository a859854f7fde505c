// TOML text to a flat list of keys with their places. The only unit that sees the TOML library is its .cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/value.hpp"

namespace lockstep::config {

struct Entry {
  std::string table;  // "" for keys before the first table
  std::string key;
  Value value;
  std::string where;  // "file:line", "--set ..." or "preset ..."

  std::string path() const { return table.empty() ? key : table + "." + key; }
};

struct Section {
  std::string name;
  std::string where;
};

struct Document {
  std::vector<Entry> entries;     // in the order of their lines
  std::vector<Section> sections;  // tables, empty ones too; deeper tables have a dotted name
};

// `name` is what messages call the text. Throws UsageError with name:line:column when it is not TOML.
Document parse_toml(std::string_view text, const std::string& name);

// "table.key=value" of a --set flag; a value that is not valid TOML is taken as a string. Throws UsageError
// when there is no '=' or no key, or the value is not UTF-8.
Entry parse_override(const std::string& text);

}  // namespace lockstep::config
