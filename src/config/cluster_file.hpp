// A file with a [cluster] table of figures, as cluster.file names it and `lockstep calibrate` writes it.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "config/toml_source.hpp"

namespace lockstep::config {

// The lines between which `calibrate` writes. A file that begins so and does not end so was cut.
inline constexpr std::string_view calibration_first_line =
    "# This machine, as `lockstep calibrate` measured it.";
inline constexpr std::string_view calibration_last_line = "# End: this file is whole.";

// Its keys, which may be others than belong there. UsageError when it cannot be read, was cut, or holds no
// key of [cluster].
std::vector<Entry> read_cluster_file(const std::filesystem::path& file);

// The same of a file with a [software] table, as software.file names it.
std::vector<Entry> read_software_file(const std::filesystem::path& file);

// The text of a run, cluster or software file (`what`). UsageError when there is none, or far too much.
std::string read_text(const std::filesystem::path& file, const char* what);

}  // namespace lockstep::config
