#include "validate/sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

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
       .fills = {gpt, tied, no_sequence_parallel, plain_dp, megatron_order},
       .micro_batches = {1, 2, 4, 8},
       .most_virtual_stages = 8,
       .interleaved =
           "section 5.1; of its scatter/gather optimization nothing is modelled: each tensor-parallel "
           "rank sends every boundary whole"},
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

// "A100-80GB SXM (Selene)": A100, 80G, SXM, SELENE.
std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> out;
  bool inside = false;
  for (const char c : name) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter && !inside) out.emplace_back();
    if (letter) out.back() += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    inside = letter;
  }
  for (std::string& word : out) {
    if (word.ends_with("GB") && word != "GB") word.pop_back();
  }
  return out;
}

// What a GPU's name must have, and what it may besides; `any` may be in every name. A word beyond these
// (PCIe, NVL, another wattage) is another device.
struct NamedGpu {
  std::vector<std::string_view> needed, allowed;
  std::string_view preset, device;
};
const std::vector<std::string_view>& words_of_any() {
  static const std::vector<std::string_view> any = {
      "NVIDIA", "TENSOR", "CORE",   "GPU",    "HGX",       "DGX",  "SXM",   "SXM4",
      "SXM5",   "SXM6",   "AMPERE", "HOPPER", "BLACKWELL", "HBM3", "HBM2E", "HBM3E"};
  return any;
}
const std::vector<NamedGpu>& named_gpus() {
  static const std::vector<NamedGpu> all = {
      {{"A100", "80G"}, {"400W", "SELENE"}, "a100-selene", ""},
      {{"H100", "96G"}, {"500W"}, "h100-rails", "h100-96g"},
      {{"H100"}, {"80G", "700W"}, "h100-rails", ""},
      {{"H200"}, {"141G", "700W"}, "h100-rails", "h200"},
      {{"B200"}, {"180G", "192G", "1000W"}, "b200-nvl8", ""},
      {{"GB200"}, {"NVL72", "192G"}, "gb200-nvl72", ""},
  };
  return all;
}

bool has_word(std::span<const std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_called(const NamedGpu& gpu, const std::vector<std::string>& words) {
  const auto given = [&](std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  return std::all_of(gpu.needed.begin(), gpu.needed.end(), given) &&
         std::all_of(words.begin(), words.end(), [&](const std::string& word) {
           return has_word(gpu.needed, word) || has_word(gpu.allowed, word) || has_word(words_of_any(), word);
         });
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
  const std::vector<std::string> words = words_of(gpu);
  for (const NamedGpu& one : named_gpus()) {
    if (is_called(one, words)) return {one.preset, one.device, fmt::format("for the GPU \"{}\"", gpu)};
  }
  std::vector<std::string> known;
  for (const NamedGpu& one : named_gpus()) known.push_back(fmt::format("{}", fmt::join(one.needed, " ")));
  return {"", "",
          fmt::format("there is no preset for the GPU \"{}\"; there are {}, as SXM modules", gpu,
                      fmt::join(known, ", "))};
}

}  // namespace lockstep::validate
