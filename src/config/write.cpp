// The resolved run file as TOML.
#include <fmt/format.h>

#include "config/schema.hpp"

namespace lockstep::config {

std::string to_toml(const RunFile& run) {
  std::string out = "# Resolved run file: every key with its value.\n";
  std::string table;
  for (const Key& key : schema()) {
    if (!key.is_built()) continue;
    if (key.table != table) out += fmt::format("\n[{}]\n", table = key.table);
    out += fmt::format("# {}\n{} = {}\n", key.sentence, to_key(key.name), to_literal(read_key(key, run)));
  }
  return out;
}

}  // namespace lockstep::config
