// What the tests of the run file share.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "config/load.hpp"

namespace lockstep::config {

inline const std::string configs = LOCKSTEP_SOURCE_DIR "/configs/";

inline std::string read_all(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// configs/tiny.toml with overrides.
inline Examined examine_tiny(const std::vector<std::string>& overrides) {
  return examine_run_text(read_all(configs + "tiny.toml"), configs + "tiny.toml", overrides);
}

inline Examined examine(const std::string& text) { return examine_run_text(text, "t.toml", {}); }

}  // namespace lockstep::config
