// What is known of a source beyond its rows: the program that ran, and what fills its empty cells. Nothing
// here is per row, and nothing is fitted: what is, stands in the presets of devices and software.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "validate/measured_time.hpp"
#include "validate/measurement.hpp"

namespace lockstep::validate {

// A key of the run file and its TOML literal, where the row does not say.
struct Fill {
  std::string_view key, literal, why;
};

struct SourceRule {
  std::string_view source = "";  // how the row's source begins
  std::string_view software = "";
  ModelFlops model_flops = ModelFlops::palm;
  std::vector<Fill> fills = {};
  // Rows whose model has none of these words in its name ran the program without its compiler, preset
  // SOFTWARE-eager; empty: no row did.
  std::vector<std::string_view> eager_unless = {};
  // Whether memory_gib is what tensors were allocated, so that plan's margin is left out; else what the
  // allocator reserved.
  bool memory_allocated = false;
  // Rows whose model has this word in its name have what Lockstep does not model.
  std::string_view lacking_word = "", lacking = "";
  std::vector<int64_t> micro_batches = {};  // among which the predicted-fastest fills an empty micro_batch
  // With one pipeline stage each layer's gradients are reduced by themselves, beside the backward pass.
  bool chunk_is_a_layer = false;
  int64_t most_virtual_stages = 1;  // the same for vpp: 1 to this
  // Why an empty vpp of several pipeline stages is at least 2, for the source ran the interleaved schedule.
  std::string_view interleaved = "";
};

// The rule of a source; a general one for a source that is not known.
const SourceRule& rule_of(const std::string& source);
// Whether it has a rule of its own: the presets were fitted on rows of these.
bool is_known(const std::string& source);

// A cluster for a GPU's name. Every word of the name must be known of that GPU: "H100 PCIe" is no H100 SXM.
// `preset` is empty for a name without one, and `why` says so.
struct GpuRule {
  std::string_view preset, device;  // device empty: the preset's
  std::string why;
};
GpuRule cluster_of(const std::string& gpu);

}  // namespace lockstep::validate
