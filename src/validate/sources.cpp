#include "validate/sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lockstep::validate {

namespace {

constexpr Fill gpt = {"model.architecture", "\"gpt\"", "a GPT of Megatron-LM"};
constexpr Fill llama = {"model.architecture", "\"llama\"", "a Llama"};
constexpr Fill tied = {"model.tie_embeddings", "true", "Megatron-LM's default"};
constexpr Fill sequence_parallel = {"parallel.sequence_parallel", "true", "as the source runs it"};
constexpr Fill no_sequence_parallel = {"parallel.sequence_parallel", "false", "not in that program yet"};
constexpr Fill plain_dp = {"parallel.zero", "0", "no distributed optimizer in that program"};
constexpr Fill zero_1 = {"parallel.zero", "1", "distributed optimizer"};
constexpr Fill no_recompute = {"parallel.recompute", "\"none\"", "the source names none"};
constexpr Fill one_chunk = {"parallel.virtual_stages", "1", "not given"};
constexpr Fill one_sequence = {"parallel.micro_batch", "1", "usual with so many pipeline stages"};
constexpr Fill megatron_order = {"parallel.rank_order", "\"tp-cp-dp-pp\"", "Megatron-LM's order"};
constexpr Fill gpt2_vocab = {"model.vocab", "51200", "GPT-2's 50,257, padded"};

std::vector<SourceRule> all_rules() {
  return {
      {.source = "Megatron-LM SC21",
       .software = "megatron-2021",
       .fills = {gpt, tied, no_sequence_parallel, plain_dp, one_chunk, megatron_order},
       .micro_batches = {1, 2, 4, 8}},
      {.source = "Korthikanti", .software = "megatron-2021", .fills = {gpt, tied, plain_dp, megatron_order}},
      {.source = "MegaScale",
       .software = "megatron-2023",
       .fills = {gpt,
                 tied,
                 sequence_parallel,
                 zero_1,
                 one_sequence,
                 megatron_order,
                 {"parallel.recompute", "[\"attention\"]",
                  "selective, as Megatron-LM's examples of that time"}},
       .lacking_word = "(MegaScale)",
       .lacking = "sliding-window attention and the parallel transformer block are not built"},
      {.source = "Llama 3 Herd",
       .software = "llama3",
       .model_flops = ModelFlops::all_parameters_causal,
       .fills = {llama,
                 sequence_parallel,
                 one_sequence,
                 no_recompute,
                 {"cluster.preset", "\"h100-24k\"", "the cluster of the paper, section 3.3.1"},
                 {"parallel.virtual_stages", "8", "126 layers = 16 stages x 8 chunks - 2"},
                 {"parallel.first_stage_less_layers", "1", "section 3.3.2"},
                 {"parallel.last_stage_less_layers", "1", "section 3.3.2"},
                 {"parallel.rank_order", "\"tp-cp-pp-dp\"", "section 3.3.2"}}},
      {.source = "Megatron-LM README",
       .software = "megatron-2024",
       .fills = {gpt,
                 sequence_parallel,
                 zero_1,
                 no_recompute,
                 megatron_order,
                 {"model.tie_embeddings", "false", "the printed parameters count two matrices"},
                 {"parallel.tp", "8", "layout of the table's 177B row"},
                 {"parallel.cp", "1", "layout of the table's 177B row"},
                 {"parallel.pp", "6", "layout of the table's 177B row"}},
       .micro_batches = {1, 2, 4, 8},
       .chunk_is_a_layer = true,
       .most_virtual_stages = 8},
      {.source = "torchtitan",
       .software = "torchtitan",
       .fills = {llama, sequence_parallel, {"parallel.zero", "3", "FSDP"}, megatron_order},
       .eager_unless = {"compile", "TP"}},
      {.source = "SimuMax",
       .software = "megatron-2025",
       .fills = {llama, sequence_parallel, zero_1, no_recompute, one_chunk, megatron_order},
       .memory_allocated = true},
      {.source = "vTrain",
       .software = "megatron-deepspeed",
       .fills = {gpt,
                 tied,
                 no_sequence_parallel,
                 plain_dp,
                 gpt2_vocab,
                 {"cluster.nic_bandwidth", "12.5e9", "800 Gb/s a node of 8"},
                 megatron_order}},
  };
}

std::string squeezed(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

}  // namespace

const SourceRule& rule_of(const std::string& source) {
  static const std::vector<SourceRule> rules = all_rules();
  static const SourceRule general = {.source = "",
                                     .software = "",
                                     .fills = {sequence_parallel, zero_1, no_recompute, gpt2_vocab},
                                     .micro_batches = {1, 2, 4, 8},
                                     .most_virtual_stages = 8};
  const auto found = std::find_if(rules.begin(), rules.end(),
                                  [&](const SourceRule& rule) { return source.starts_with(rule.source); });
  return found == rules.end() ? general : *found;
}

bool is_known(const std::string& source) { return !rule_of(source).source.empty(); }

GpuRule cluster_of(const std::string& gpu) {
  const std::string name = squeezed(gpu);
  const auto has = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  const auto found = [&](std::string_view preset, std::string_view device) {
    return GpuRule{preset, device, fmt::format("for the GPU \"{}\"", gpu)};
  };
  if (has("GB200")) return found("gb200-nvl72", "");
  if (has("B200")) return found("b200-nvl8", "");
  if (has("H200")) return found("h100-rails", "h200");
  if (has("H100") && has("96G")) return found("h100-rails", "h100-96g");
  if (has("H100") && (has("80G") || !has("G"))) return found("h100-rails", "");
  if (has("A100") && has("80G")) return found("a100-selene", "");
  return {};
}

}  // namespace lockstep::validate
