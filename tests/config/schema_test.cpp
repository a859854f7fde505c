#include "config/schema.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include <set>

#include "config/presets.hpp"
#include "support.hpp"

namespace lockstep::config {
namespace {

TEST(Schema, HasEveryKeyOfTheInterface) {
  for (const char* path : {"name",
                           "model.preset",
                           "model.hf",
                           "model.architecture",
                           "model.layers",
                           "model.hidden",
                           "model.ffn",
                           "model.heads",
                           "model.kv_heads",
                           "model.vocab",
                           "model.tie_embeddings",
                           "cluster.preset",
                           "cluster.file",
                           "cluster.device",
                           "cluster.topology",
                           "cluster.gemm_curve",
                           "cluster.collective_algorithm",
                           "cluster.rack_uplinks",
                           "data.prefetch",
                           "software.preset",
                           "software.attention",
                           "software.memory_margin",
                           "simulate.slow",
                           "simulate.slow_links",
                           "cluster.gpus",
                           "parallel.tp",
                           "parallel.cp",
                           "parallel.pp",
                           "parallel.dp",
                           "parallel.schedule",
                           "parallel.virtual_stages",
                           "parallel.first_stage_less_layers",
                           "parallel.last_stage_less_layers",
                           "parallel.layer_split",
                           "parallel.replicas",
                           "parallel.micro_batch",
                           "parallel.sequence_parallel",
                           "parallel.zero",
                           "parallel.reshard_after_forward",
                           "parallel.gradient_scatter",
                           "parallel.gathered_input",
                           "parallel.recompute",
                           "parallel.recompute_every",
                           "parallel.rank_order",
                           "train.sequence",
                           "train.global_batch",
                           "train.batch_ramp",
                           "train.steps",
                           "train.tokens",
                           "train.optimizer",
                           "train.momentum",
                           "train.weight_decay",
                           "train.no_decay",
                           "train.dtype",
                           "train.lr",
                           "train.warmup",
                           "train.schedule",
                           "train.decay_steps",
                           "train.grad_clip",
                           "train.seed",
                           "train.nonfinite",
                           "train.eval_interval",
                           "data.text",
                           "data.document_mask",
                           "data.shards",
                           "data.tokenizer",
                           "checkpoint.interval",
                           "simulate.jitter"}) {
    EXPECT_NE(find_key(path), nullptr) << path;
  }
}

TEST(Schema, KeysAreUniqueAndEachHasASentence) {
  std::set<std::string> paths;
  for (const Key& key : schema()) {
    EXPECT_TRUE(paths.insert(key.path()).second) << key.path();
    EXPECT_GT(key.sentence.size(), 8u) << key.path();
    EXPECT_EQ(key.sentence.back(), '.') << key.path();
    EXPECT_EQ(key.sentence.find('\n'), std::string::npos) << key.path();
  }
  std::vector<std::string> tables = schema_tables();
  EXPECT_EQ(std::set<std::string>(tables.begin(), tables.end()).size(), tables.size()) << "a table is split";
}

TEST(Schema, DefaultsObeyTheirOwnRules) {
  for (const Key& key : schema()) {
    if (!key.is_built() || key.need != Need::optional) continue;
    EXPECT_EQ(check_value(key, read_key(key, RunFile{})).rule, "") << key.path();
  }
}

// Two keys bound to one field, or an accessor of the wrong field, would be seen here.
TEST(Schema, EachKeyHasAFieldOfItsOwn) {
  RunFile run;
  std::set<const void*> fields;
  size_t built = 0;
  for (const Key& key : schema()) {
    const Field field = key.field(run);
    if (std::holds_alternative<std::monostate>(field)) continue;
    ++built;
    std::visit(
        [&](auto pointer) {
          if constexpr (!std::is_same_v<decltype(pointer), std::monostate>) fields.insert(pointer);
        },
        field);
  }
  EXPECT_EQ(fields.size(), built);
}

TEST(Schema, SuggestsTheNearestKey) {
  EXPECT_EQ(nearest_key("model", "layer"), "model.layers");
  EXPECT_EQ(nearest_key("model", "tp"), "parallel.tp");
  EXPECT_EQ(nearest_key("", "layers"), "model.layers");
  EXPECT_EQ(nearest_key("train", "sede"), "train.seed");
  EXPECT_EQ(nearest_key("simulate", "sede"), "simulate.seed");
  EXPECT_EQ(nearest_key("train", "warm_up"), "train.warmup");
}

TEST(Schema, DescriptionNamesEveryKeyWithItsSentence) {
  const std::string text = describe_schema();
  for (const Key& key : schema()) {
    EXPECT_NE(text.find("\n" + key.name + " "), key.table.empty() ? 0 : std::string::npos) << key.path();
    EXPECT_NE(text.find(key.sentence), std::string::npos) << key.path();
  }
  for (const std::string& table : later_tables()) EXPECT_NE(text.find("[" + table + "]"), std::string::npos);
}

// docs/run-file.md shows the keys; after a change to the schema, put the text below "Actual" into its block.
TEST(Schema, TheDocumentationShowsTheKeysAsTheyAre) {
  std::ifstream in(LOCKSTEP_SOURCE_DIR "/docs/run-file.md");
  const std::string page((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const size_t begin = page.find("```text\n") + 8;
  EXPECT_EQ(page.substr(begin, page.find("```", begin) - begin), describe_schema());
}

TEST(Presets, EachGivesEveryFigureOfItsTable) {
  for (const PresetKind kind :
       {PresetKind::model, PresetKind::cluster, PresetKind::device, PresetKind::software}) {
    const std::string table = kind == PresetKind::model      ? "model"
                              : kind == PresetKind::software ? "software"
                                                             : "cluster";
    EXPECT_FALSE(preset_names(kind).empty());
    for (const std::string& name : preset_names(kind)) {
      std::set<std::string> given;
      for (const Entry& entry : preset_entries(kind, name)) {
        const Key* key = find_key(entry.path());
        ASSERT_NE(key, nullptr) << name << ": " << entry.path();
        EXPECT_EQ(entry.table, table) << name;
        EXPECT_EQ(check_value(*key, entry.value).rule, "") << name << ": " << entry.path();
        given.insert(entry.path());
        if (entry.path() != "cluster.device") continue;
        for (const Entry& of_device :
             preset_entries(PresetKind::device, std::get<std::string>(entry.value))) {
          given.insert(of_device.path());
        }
      }
      if (kind == PresetKind::device) continue;  // the cluster around it has the rest
      for (const Key& key : schema()) {
        if (key.table != table || key.need != Need::required_or_preset) continue;
        EXPECT_EQ(given.count(key.path()), 1u) << name << " lacks " << key.path();
      }
    }
  }
  EXPECT_TRUE(preset_entries(PresetKind::model, "h100-24k").empty());
}

// Every choice that a software preset leaves open is Lockstep's own, and its preset says all of them.
TEST(Presets, LockstepsOwnSoftwareIsTheDefault) {
  SoftwareConfig named = examine_tiny({"software.preset=lockstep"}).run.software;
  EXPECT_EQ(named.preset, "lockstep");
  named.preset.clear();
  EXPECT_EQ(named, SoftwareConfig{});
  std::set<std::string> given;
  for (const Entry& entry : preset_entries(PresetKind::software, "lockstep")) given.insert(entry.key);
  for (const Key& key : schema()) {
    if (key.table != "software" || key.name == "preset" || key.name == "file") continue;
    EXPECT_EQ(given.count(key.name), 1u) << key.name;
  }
}

TEST(Presets, ASoftwareHasAtMostFiveFittedNumbers) {
  for (const std::string& name : preset_names(PresetKind::software)) {
    int numbers = 0;
    const std::string preset = "software.preset=" + name;
    const SoftwareConfig s = examine_tiny({preset}).run.software;
    for (const double number : {s.tensor_parallel_overlap, s.dp_network_efficiency, s.host_seconds_per_launch,
                                s.host_seconds_per_micro_batch, s.host_skew}) {
      numbers += number > 0 ? 1 : 0;
    }
    EXPECT_LE(numbers + (s.elementwise_traffic != 1 ? 1 : 0), 5) << name;
  }
}

}  // namespace
}  // namespace lockstep::config
