#include "config/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <system_error>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "config/cluster_file.hpp"
#include "config/layers.hpp"
#include "config/notes.hpp"
#include "config/presets.hpp"
#include "config/rules.hpp"
#include "config/schema.hpp"
#include "config/toml_source.hpp"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class Loader {
 public:
  explicit Loader(const fs::path& file, const std::set<std::string>& unchosen)
      : file_(file), unchosen_(unchosen) {
    run_.origin.file = file.string();
  }

  Examined load(const std::string& text, const std::vector<std::string>& overrides) {
    const Document document = parse_toml(text, file_.string());
    for (const Section& section : document.sections) check_table(section);
    for (const Entry& entry : document.entries) take(entry, Rank::file);
    for (const std::string& flag : overrides) take_override(flag);
    apply_presets();
    fill();
    find_missing();
    find_text();
    if (run_.model.architecture == Architecture::gpt) fill_gpt();
    if (run_.parallel.replicas == 0) run_.parallel.replicas = run_.parallel.dp;
    std::set<std::string> unchecked = unchosen_;
    unchecked.insert(bad_.begin(), bad_.end());
    check_rules(run_, unchecked, problems_);
    add_notes(layers_, run_);
    return {run_, problems_};
  }

 private:
  void check_table(const Section& section) {
    if (contains(schema_tables(), section.name)) return;
    const std::string name = fmt::format("[{}]", to_key(section.name));
    if (contains(later_tables(), section.name)) {
      problems_.push_back({section.where, name, "", "this table is not built yet", "", ""});
    } else if (find_key(section.name) != nullptr) {
      problems_.push_back({section.where, name, "", "this is a key, not a table", "", ""});
    } else {
      problems_.push_back(
          {section.where, name, "",
           fmt::format("unknown table; did you mean [{}]?", nearest_name(section.name, schema_tables())), "",
           ""});
    }
  }

  // Later flags of a key replace earlier ones; the file itself cannot hold a key twice.
  void take(const Entry& entry, Rank rank) {
    if (find_key(entry.path()) != nullptr) {
      layers_.put(entry, rank);
      return;
    }
    if (entry.table.empty() && contains(schema_tables(), entry.key)) {
      problems_.push_back({entry.where, to_key(entry.key), to_literal(entry.value),
                           fmt::format("this is a table: write [{}] and its keys below", entry.key), "", ""});
      return;
    }
    // Keys of an unknown table are not reported one by one.
    if (!entry.table.empty() && !contains(schema_tables(), entry.table)) return;
    const std::string shown = (entry.table.empty() ? "" : entry.table + ".") + to_key(entry.key);
    problems_.push_back({entry.where, shown, to_literal(entry.value),
                         fmt::format("unknown key; did you mean {}?", nearest_key(entry.table, entry.key)),
                         "", ""});
  }

  void take_override(const std::string& flag) {
    const Entry entry = parse_override(flag);
    if (!entry.table.empty()) check_table({entry.table, entry.where});
    if (entry.path() == "cluster.file" || entry.path() == "software.file") note_other_file(entry);
    take(entry, Rank::flag);
  }

  void note_other_file(const Entry& entry) {
    const std::string* other = layers_.text(entry.path());
    if (other == nullptr || other->empty() || layers_.rank(entry.path()) != Rank::file) return;
    run_.origin.notes.push_back(fmt::format("{} = {} ({}) is not read: {} takes its place", entry.path(),
                                            to_literal(*other), layers_.at(entry.path()).where,
                                            to_literal(entry.value)));
  }

  // Each may name the next: a cluster file or a cluster preset its device.
  void apply_presets() {
    apply_preset(PresetKind::model, "model.preset", preset_rank);
    apply_file("cluster");
    apply_preset(PresetKind::cluster, "cluster.preset", preset_rank);
    apply_preset(PresetKind::device, "cluster.device", device_rank);
    drop_hidden_curves();
    apply_file("software");
    apply_preset(PresetKind::software, "software.preset", preset_rank);
  }

  void apply_preset(PresetKind kind, const std::string& key, Rank (*rank_of)(Rank)) {
    const std::string* name = layers_.text(key);
    if (name == nullptr) return;
    const Rank rank = rank_of(layers_.rank(key));
    for (const Entry& entry : preset_entries(kind, *name)) layers_.put(entry, rank);
  }

  // A curve takes the place of its constant share, so one from below would undo a share that is set above it.
  void drop_hidden_curves() {
    const std::pair<std::string, std::vector<std::string>> shares[] = {
        {"gemm_efficiency", {"gemm_curve", "weight_gradient_curve"}},
        {"attention_efficiency", {"attention_curve"}},
        {"memory_efficiency", {"memory_curve", "row_curve", "exponential_curve"}}};
    for (const auto& [share, curves] : shares) {
      if (!layers_.has("cluster." + share)) continue;
      const Rank rank = layers_.rank("cluster." + share);
      for (const std::string& curve : curves) {
        if (layers_.has("cluster." + curve) && rank > layers_.rank("cluster." + curve)) {
          layers_.erase("cluster." + curve);
        }
      }
    }
  }

  // Once its figures are taken the file is no longer needed: a resolved run file stands alone.
  void apply_file(const std::string& table) {
    const std::string key = table + ".file";
    if (layers_.text(key) == nullptr || layers_.text(key)->empty()) return;
    const Entry named = layers_.at(key);
    const Rank rank = layers_.rank(key);
    layers_.erase(key);
    const std::string name = std::get<std::string>(named.value);
    const fs::path from_flag = fs::current_path() / name;
    const fs::path beside = fs::absolute(file_).parent_path() / name;
    const bool flag_first = rank == Rank::flag || !fs::exists(beside);
    const fs::path path = (flag_first ? from_flag : beside).lexically_normal();
    std::vector<Entry> entries;
    try {
      entries = table == "cluster" ? read_cluster_file(path) : read_software_file(path);
    } catch (const UsageError& error) {
      problems_.push_back({named.where, key, to_literal(named.value), error.what(), key, "\"\""});
      return;
    }
    for (const Entry& entry : entries) {
      if (belongs_in_file(table, entry)) layers_.put(entry, cluster_file_rank(rank));
    }
  }

  bool belongs_in_file(const std::string& table, const Entry& entry) {
    const bool own_name = entry.key == "preset" || entry.key == "file";
    const bool known = find_key(entry.path()) != nullptr;
    if (entry.table == table && !own_name && known) return true;
    std::string rule = fmt::format("a {0} file holds a [{0}] table of figures, and nothing else", table);
    if (entry.table == table && !known) {
      rule = fmt::format("unknown key; did you mean {}?", nearest_key(entry.table, entry.key));
    }
    problems_.push_back({entry.where, to_key(entry.key), to_literal(entry.value), rule, "", ""});
    return false;
  }

  void fill() {
    for (const Key& key : schema()) {
      if (!layers_.has(key.path())) continue;
      const Entry& entry = layers_.at(key.path());
      const Verdict verdict = check_value(key, entry.value);
      if (verdict.rule.empty()) {
        write_key(key, entry.value, run_);
        run_.origin.where[key.path()] = entry.where;
      } else {
        bad_.insert(key.path());
        problems_.push_back(
            {entry.where, key.path(), to_literal(entry.value), verdict.rule, key.path(), verdict.fix});
      }
    }
  }

  // What a gpt model has where nobody said otherwise.
  void fill_gpt() {
    if (!layers_.has("model.tie_embeddings")) run_.model.tie_embeddings = true;
    if (run_.model.positions == 0) run_.model.positions = run_.train.sequence;
  }

  // Keys without default that nobody set: one problem a table, or a file without preset would get twenty.
  void find_missing() {
    std::map<std::string, std::string> missing;  // table to names
    for (const Key& key : schema()) {
      if (key.need == Need::optional || layers_.has(key.path())) continue;
      bad_.insert(key.path());
      if (key.need == Need::required_or_preset) {
        std::string& names = missing[key.table];
        names += (names.empty() ? "" : ", ") + key.name;
      } else {
        report_missing(key);
      }
    }
    for (const auto& [table, names] : missing) {
      if (bad_.count(table + ".preset") > 0) continue;  // the preset's own problem comes first
      const PresetKind kind = table == "model" ? PresetKind::model : PresetKind::cluster;
      std::string presets;
      for (const std::string& name : preset_names(kind)) presets += (presets.empty() ? "" : ", ") + name;
      problems_.push_back({run_.origin.file, "[" + table + "]", "",
                           fmt::format("missing: {}; give them, or preset = one of: {}", names, presets), "",
                           ""});
    }
  }

  void report_missing(const Key& key) {
    Problem problem{
        run_.origin.file, key.path(), "", "missing: " + key.sentence.substr(0, key.sentence.size() - 1),
        key.path(),       ""};
    if (key.rule.file_name) {
      problem.fix = check_value(key, file_.stem().string()).fix;
      if (problem.fix.empty()) problem.fix = to_literal(file_.stem().string());
    }
    const bool mesh_known = bad_.count("parallel.tp") + bad_.count("parallel.cp") +
                                bad_.count("parallel.pp") + bad_.count("parallel.dp") ==
                            0;
    const int64_t world = run_.parallel.world_size();
    if (key.path() == "cluster.gpus" && mesh_known && check_value(key, world).rule.empty()) {
      problem.fix = to_literal(world);
    }
    problems_.push_back(problem);
  }

  void find_text() {
    if (run_.data.text.empty()) return;
    const fs::path text = run_.data.text;
    std::vector<fs::path> folders;
    if (text.is_absolute()) {
      folders = {"/"};
    } else {
      fs::path folder = fs::absolute(file_).lexically_normal().parent_path();
      for (int up = 0; up <= 3; ++up, folder = folder.parent_path()) folders.push_back(folder);
      folders.push_back(fs::current_path());
    }
    std::vector<std::string>& places = run_.origin.text_places;
    for (const fs::path& folder : folders) {
      const std::string place = (folder / text).lexically_normal().string();
      if (!contains(places, place)) places.push_back(place);
    }
    std::error_code ignored;  // a place that cannot be looked at has no text
    const auto found = std::find_if(places.begin(), places.end(),
                                    [&](const std::string& place) { return fs::exists(place, ignored); });
    run_.data.text = found != places.end() ? *found : places.front();
  }

  fs::path file_;
  std::set<std::string> unchosen_;
  RunFile run_;
  Layers layers_;
  std::set<std::string> bad_;
  std::vector<Problem> problems_;
};

}  // namespace

Examined examine_run_text(const std::string& text, const fs::path& file,
                          const std::vector<std::string>& overrides, const std::set<std::string>& unchosen) {
  return Loader(file, unchosen).load(text, overrides);
}

RunFile load_run_file(const fs::path& file, const std::vector<std::string>& overrides,
                      const std::set<std::string>& unchosen) {
  const Examined examined = examine_run_text(read_text(file, "run file"), file, overrides, unchosen);
  if (!examined.problems.empty()) throw UsageError(to_string(examined.problems));
  return examined.run;
}

}  // namespace lockstep::config
