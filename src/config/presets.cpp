#include "config/presets.hpp"

#include <algorithm>
#include <span>

#include "base/embedded.hpp"

namespace lockstep {
// Generated from configs/presets by cmake/embed.cmake.
std::span<const EmbeddedFile> embedded_models();
std::span<const EmbeddedFile> embedded_clusters();
std::span<const EmbeddedFile> embedded_devices();
std::span<const EmbeddedFile> embedded_software();
}  // namespace lockstep

namespace lockstep::config {
namespace {

std::span<const EmbeddedFile> files_of(PresetKind kind) {
  switch (kind) {
    case PresetKind::model:
      return embedded_models();
    case PresetKind::cluster:
      return embedded_clusters();
    case PresetKind::software:
      return embedded_software();
    case PresetKind::device:
      break;
  }
  return embedded_devices();
}

}  // namespace

std::vector<std::string> preset_names(PresetKind kind) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : files_of(kind)) names.emplace_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Entry> preset_entries(PresetKind kind, const std::string& name) {
  for (const EmbeddedFile& file : files_of(kind)) {
    if (file.name != name) continue;
    std::vector<Entry> entries = parse_toml(file.content, "preset " + name).entries;
    for (Entry& entry : entries) entry.where = "preset " + name;
    return entries;
  }
  return {};
}

}  // namespace lockstep::config
