#include "config/layers.hpp"

#include <variant>

namespace lockstep::config {

void Layers::put(const Entry& entry, Rank rank) {
  const auto [found, added] = entries_.try_emplace(entry.path(), Ranked{entry, rank});
  if (!added && rank >= found->second.rank) found->second = {entry, rank};
}

const std::string* Layers::text(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : std::get_if<std::string>(&found->second.entry.value);
}

Rank preset_rank(Rank name) { return name == Rank::flag ? Rank::flag_preset : Rank::preset; }

Rank cluster_file_rank(Rank name) {
  return name == Rank::flag ? Rank::flag_cluster_file : Rank::cluster_file;
}

Rank device_rank(Rank name) {
  switch (name) {
    case Rank::preset:
      return Rank::preset_device;
    case Rank::flag_preset:
      return Rank::flag_preset_device;
    case Rank::flag_cluster_file:
      return Rank::flag_cluster_file_device;
    case Rank::flag:
      return Rank::flag_device;
    default:
      return Rank::device;
  }
}

}  // namespace lockstep::config
