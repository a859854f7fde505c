// Known models, clusters, devices and training software: TOML files under configs/presets, compiled into the
// program.
#pragma once

#include <string>
#include <vector>

#include "config/toml_source.hpp"

namespace lockstep::config {

enum class PresetKind { model, cluster, device, software };

// Names that `preset` in the table of that kind may have, in alphabetical order.
std::vector<std::string> preset_names(PresetKind kind);

// The keys of a preset, each with "preset NAME" as its place. Empty when there is no such preset.
std::vector<Entry> preset_entries(PresetKind kind, const std::string& name);

}  // namespace lockstep::config
