// Where a command may write the file that a flag names: refused before any work is done.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::cli {

// UsageError unless a file can be made at `file`, or a regular file is there that may be replaced. `what`
// names the flag: "--output cluster.toml".
void check_output_place(const std::string& what, const std::filesystem::path& file);

// Of a trace: UsageError too when it is one of `inputs`, lies inside `run_folder` (empty: none), or is there
// and no trace, nor empty. A character device, as /dev/null, is written to as it is.
void check_trace_place(const std::filesystem::path& file, const std::vector<std::filesystem::path>& inputs,
                       const std::filesystem::path& run_folder);

}  // namespace lockstep::cli
