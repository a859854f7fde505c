// Files that are either whole or absent.
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep::observe {

// Writes `content` to a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder.
// RunError (with the system's reason) leaves `path` as it was and no temporary file.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace lockstep::observe
