#include "validate/row_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>

#include "config/load.hpp"
#include "config/toml_source.hpp"

namespace lockstep::validate {

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The words that sources use for recomputation, and the run file's.
std::string recompute_literal(const std::string& words) {
  static const std::map<std::string, std::string> known = {
      {"none", "\"none\""},
      {"none?", "\"none\""},
      {"full", "\"full\""},
      {"full (no SP)", "\"full\""},
      {"full AC", "\"full\""},
      {"selective", "[\"attention\"]"},
      {"selective + SP", "[\"attention\"]"},
      {"selective AC", "[\"second_products\"]"},
      {"per-op SAC", "[\"second_products\"]"},
  };
  const auto found = known.find(words);
  return found == known.end() ? "" : found->second;
}

class Builder {
 public:
  Builder(const Measurement& row, const SourceRule& rule, const std::vector<std::string>& settings)
      : row_(row), rule_(rule), settings_(settings) {}

  RowRuns build() {
    RowRuns out;
    take_row();
    for (const Fill& fill : rule_.fills) assume(fill);
    fill_rest();
    if (reasons_.empty()) add_candidates(out);
    out.reason = fmt::format("{}", fmt::join(reasons_, "; "));
    out.assumed = std::move(assumed_);
    for (const std::string& setting : settings_) {
      const std::string key = config::parse_override(setting).path();
      std::erase_if(out.assumed, [&](const std::string& line) { return line.starts_with(key + " = "); });
    }
    return out;
  }

 private:
  bool has(const std::string& key) const { return keys_.contains(key); }
  void put(const std::string& key, const std::string& literal) { keys_[key] = literal; }
  void put(const std::string& key, const std::optional<int64_t>& cell) {
    if (cell) put(key, std::to_string(*cell));
  }
  void assume(const Fill& fill) {
    const std::string key(fill.key), literal(fill.literal);
    if (has(key)) return;
    put(key, literal);
    assumed_.push_back(fmt::format("{} = {} ({})", key, literal, fill.why));
  }
  void assume(const std::string& key, int64_t value, std::string_view why) {
    assume({key, std::to_string(value), why});
  }

  void take_row() {
    for (const std::string& clause : row_.unreadable) reasons_.push_back(clause);
    if (lower(row_.model).find("fp8") != std::string::npos) reasons_.emplace_back("fp8 is not built");
    if (!rule_.lacking_word.empty() && row_.model.find(rule_.lacking_word) != std::string::npos) {
      reasons_.emplace_back(rule_.lacking);
    }
    put("model.layers", row_.layers);
    put("model.hidden", row_.hidden);
    put("model.heads", row_.heads);
    put("model.kv_heads", row_.kv_heads);
    put("model.ffn", row_.ffn);
    put("model.vocab", row_.vocab);
    put("train.sequence", row_.sequence);
    put("train.global_batch", row_.global_batch);
    put("cluster.gpus", row_.gpus);
    put("parallel.tp", row_.tp);
    put("parallel.cp", row_.cp);
    put("parallel.pp", row_.pp);
    put("parallel.dp", row_.dp);
    put("parallel.virtual_stages", row_.virtual_stages);
    put("parallel.micro_batch", row_.micro_batch);
    put("parallel.zero", row_.zero);
    take_recompute();
  }

  void take_recompute() {
    if (row_.recompute.empty()) return;
    const std::string literal = recompute_literal(row_.recompute);
    if (literal.empty()) {
      reasons_.push_back(fmt::format("recompute = \"{}\" is not known", row_.recompute));
      return;
    }
    put("parallel.recompute", literal);
    if (row_.recompute.ends_with("?")) {
      assumed_.push_back(fmt::format("parallel.recompute = {} (the file doubts it)", literal));
    }
    if (row_.recompute.find("no SP") != std::string::npos) put("parallel.sequence_parallel", "false");
    if (row_.recompute.find("+ SP") != std::string::npos) put("parallel.sequence_parallel", "true");
  }

  // What every source leaves open in the same way.
  void fill_rest() {
    fill_model();
    fill_cluster();
    fill_layout();
    fill_software();
    assume({"cluster.max_gpus", "0", "the row's cluster may be larger than the preset's"});
    for (const char* key : {"model.layers", "model.hidden", "model.heads", "model.ffn", "model.vocab",
                            "train.sequence", "train.global_batch", "cluster.gpus", "parallel.recompute"}) {
      if (!has(key) && reasons_.empty()) reasons_.push_back(fmt::format("{} is not given", key));
    }
  }

  void fill_model() {
    const auto named = [&](const char* word) { return lower(row_.model).find(word) != std::string::npos; };
    for (const char* word : {"mixtral", "moe", "deepseek"}) {
      if (named(word)) reasons_.emplace_back("mixtures of experts are not built");
    }
    // A GPT of Megatron-LM has as many key and value heads as query heads, and 4 x hidden between its
    // products.
    const bool shaped_as_llama = (row_.kv_heads && row_.heads && *row_.kv_heads < *row_.heads) ||
                                 (row_.ffn && row_.hidden && *row_.ffn != 4 * *row_.hidden);
    const bool by_name = named("llama") || named("gpt");
    const bool llama = by_name ? named("llama") : shaped_as_llama;
    assume({"model.architecture", llama ? "\"llama\"" : "\"gpt\"",
            by_name ? std::string("by the model's name")
                    : fmt::format("the name \"{}\" says neither llama nor gpt; by {}", row_.model,
                                  llama ? "its kv_heads or ffn" : "its shapes nothing speaks against it")});
    const bool gpt = keys_.at("model.architecture") == "\"gpt\"";
    if (row_.heads) assume("model.kv_heads", *row_.heads, "as many as query heads");
    if (gpt && row_.hidden) assume("model.ffn", 4 * *row_.hidden, "4 x hidden");
    put("train.dtype", "\"bf16\"");  // fp16 costs the same
  }

  // Of a GPU without a preset: the cluster that the settings name, for what was measured too.
  bool set_cluster() {
    bool any = false;
    for (const std::string& setting : settings_) {
      const std::string key = config::parse_override(setting).path();
      if (key != "cluster.preset" && key != "cluster.file" && key != "cluster.device") continue;
      const std::string value = setting.substr(setting.find('=') + 1);
      const bool quoted = value.starts_with('"') || value.starts_with('\'');
      put(key, quoted ? value : "\"" + value + "\"");
      any = true;
    }
    return any;
  }

  void fill_cluster() {
    const GpuRule gpu = cluster_of(row_.gpu);
    if (gpu.preset.empty() && set_cluster()) return;
    if (gpu.preset.empty()) {
      reasons_.push_back(gpu.why + "; or --set cluster.preset or cluster.file");
      return;
    }
    assume({"cluster.preset", fmt::format("\"{}\"", gpu.preset), gpu.why});
    if (!gpu.device.empty()) assume({"cluster.device", fmt::format("\"{}\"", gpu.device), gpu.why});
  }

  void fill_layout() {
    assume("parallel.cp", 1, "not given");
    const auto size = [&](const char* key) { return has(key) ? std::stoll(keys_.at(key)) : 0; };
    const int64_t replica = size("parallel.tp") * size("parallel.cp") * size("parallel.pp");
    if (replica == 0) {
      reasons_.emplace_back("the layout is not given");
    } else if (row_.gpus && *row_.gpus % replica == 0) {
      assume("parallel.dp", *row_.gpus / replica, "what is left of the GPUs");
    }
    if (replica == 0 || !row_.layers || size("parallel.pp") > 1) return;
    // On one stage a chunk is what one reduction or gather takes at a time; these programs take a layer or
    // so.
    const bool gathers = has("parallel.zero") && keys_.at("parallel.zero") == "3";
    if (gathers || rule_.chunk_is_a_layer) {
      assume("parallel.virtual_stages", *row_.layers, "parameters and gradients go layer by layer");
    }
  }

  void fill_software() {
    if (rule_.software.empty()) return;
    std::string name(rule_.software);
    const auto named = [&](std::string_view word) { return row_.model.find(word) != std::string::npos; };
    if (!rule_.eager_unless.empty() &&
        std::none_of(rule_.eager_unless.begin(), rule_.eager_unless.end(), named)) {
      name += "-eager";
    }
    assume({"software.preset", fmt::format("\"{}\"", name), "the source's program"});
  }

  std::string text(int64_t micro_batch, int64_t virtual_stages) const {
    std::map<std::string, std::string> tables;
    std::map<std::string, std::string> keys = keys_;
    keys["parallel.micro_batch"] = std::to_string(micro_batch);
    keys["parallel.virtual_stages"] = std::to_string(virtual_stages);
    keys["parallel.schedule"] = virtual_stages > 1 ? "\"interleaved\"" : "\"1f1b\"";
    for (const auto& [key, literal] : keys) {
      const size_t dot = key.find('.');
      tables[key.substr(0, dot)] += fmt::format("{} = {}\n", key.substr(dot + 1), literal);
    }
    std::string out = fmt::format("name = \"row-{}\"\n", row_.row);
    for (const auto& [table, lines] : tables) out += fmt::format("[{}]\n{}", table, lines);
    return out;
  }

  // What a setting fixes is no choice.
  std::vector<int64_t> choices(const char* key, const std::vector<int64_t>& among) const {
    for (const std::string& setting : settings_) {
      if (config::parse_override(setting).path() != key) continue;
      const std::string value = setting.substr(setting.find('=') + 1);
      int64_t number = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error == std::errc() && end == value.data() + value.size() && number > 0) return {number};
    }
    return has(key) ? std::vector<int64_t>{std::stoll(keys_.at(key))} : among;
  }

  std::vector<int64_t> chunk_choices() {
    const bool one_stage = keys_.at("parallel.pp") == "1";
    if (one_stage || rule_.most_virtual_stages == 1) {
      assume("parallel.virtual_stages", 1, one_stage ? "one pipeline stage" : "not given");
    }
    const bool interleaved = !rule_.interleaved.empty() && !has("parallel.virtual_stages");
    if (interleaved) {
      assumed_.push_back(fmt::format("parallel.schedule = \"interleaved\" ({})", rule_.interleaved));
    }
    std::vector<int64_t> among;
    for (int64_t v = interleaved ? 2 : 1; v <= rule_.most_virtual_stages; ++v) among.push_back(v);
    return choices("parallel.virtual_stages", among);
  }

  // Stages of unequal depth, and groups of micro-batches that a schedule of chunks does not fill, are no
  // choice that anyone makes.
  bool is_even(int64_t micro_batch, int64_t chunks) const {
    const int64_t stages = std::stoll(keys_.at("parallel.pp"));
    const int64_t replicas = has("parallel.dp") ? std::stoll(keys_.at("parallel.dp")) : 1;
    return chunks == 1 || (*row_.layers % (chunks * stages) == 0 &&
                           *row_.global_batch % (micro_batch * replicas * stages) == 0);
  }

  // What is wrong with it as a run file; empty: it is a candidate.
  std::string add_candidate(int64_t micro_batch, int64_t chunks, RowRuns& out) const {
    const std::string name = fmt::format("row {} as a run file", row_.row), file = text(micro_batch, chunks);
    const config::Examined published = config::examine_run_text(file, name, {});
    config::Examined examined = published;
    if (published.problems.empty() && !settings_.empty()) {
      examined = config::examine_run_text(file, name, settings_);
      if (!examined.problems.empty()) out.refused_settings = config::to_string(examined.problems);
    }
    if (!examined.problems.empty()) {
      const config::Problem& first = examined.problems.front();
      return fmt::format("{}{}{}: {}", first.key, first.value.empty() ? "" : " = ", first.value, first.rule);
    }
    if (out.candidates.empty()) out.as_published = published.run;
    out.candidates.push_back(std::move(examined.run));
    return "";
  }

  void add_candidates(RowRuns& out) {
    if (rule_.micro_batches.empty()) assume("parallel.micro_batch", 1, "not given");
    const std::vector<int64_t> micro_batches = choices("parallel.micro_batch", rule_.micro_batches);
    const std::vector<int64_t> chunks = chunk_choices();
    out.chosen = micro_batches.size() * chunks.size() > 1;
    std::string refused;
    for (const int64_t micro_batch : micro_batches) {
      for (const int64_t v : chunks) {
        if (out.chosen && !is_even(micro_batch, v)) continue;
        const std::string wrong = add_candidate(micro_batch, v, out);
        if (refused.empty()) refused = wrong;
      }
    }
    if (!out.candidates.empty()) return;
    if (refused.empty()) {
      refused = fmt::format(
          "no vpp from {} to {} cuts the {} layers and the micro-batches of {} stages evenly: give vpp and "
          "micro_batch",
          chunks.front(), chunks.back(), *row_.layers, keys_.at("parallel.pp"));
    }
    reasons_.push_back(refused);
  }

  const Measurement& row_;
  const SourceRule& rule_;
  const std::vector<std::string>& settings_;
  std::map<std::string, std::string> keys_;  // "table.key" to TOML literal
  std::vector<std::string> assumed_, reasons_;
};

}  // namespace

RowRuns runs_of(const Measurement& row, const SourceRule& rule, const std::vector<std::string>& settings) {
  return Builder(row, rule, settings).build();
}

}  // namespace lockstep::validate
