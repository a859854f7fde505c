// The keys of a run as they come from several sources, of which the strongest holds.
#pragma once

#include <map>
#include <string>

#include "config/toml_source.hpp"

namespace lockstep::config {

// Who set a key, from the weakest to the strongest. A preset, a device or a cluster file holds where no key
// beside its name says otherwise; named by a flag it stands above the whole run file, or it would do nothing
// to a file that names every key. A device stands right below whoever names it, except that a device in the
// run file stands below the cluster file too.
enum class Rank {
  preset_device,
  preset,
  device,
  cluster_file,
  file,
  flag_preset_device,
  flag_preset,
  flag_cluster_file_device,
  flag_cluster_file,
  flag_device,
  flag
};

class Layers {
 public:
  // Takes the place of what is there unless that is stronger.
  void put(const Entry& entry, Rank rank);
  void erase(const std::string& path) { entries_.erase(path); }

  bool has(const std::string& path) const { return entries_.count(path) > 0; }
  const Entry& at(const std::string& path) const { return entries_.at(path).entry; }
  Rank rank(const std::string& path) const { return entries_.at(path).rank; }
  // Null when nobody set the key, or to something else.
  const std::string* text(const std::string& path) const;

 private:
  struct Ranked {
    Entry entry;
    Rank rank;
  };
  std::map<std::string, Ranked> entries_;  // by path
};

// What the figures of a preset (or device, or cluster file) are worth whose name has this rank.
Rank preset_rank(Rank name);
Rank cluster_file_rank(Rank name);
Rank device_rank(Rank name);

}  // namespace lockstep::config
