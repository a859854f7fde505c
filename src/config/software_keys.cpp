// The keys of [software].
#include "config/key_table.hpp"
#include "config/presets.hpp"

namespace lockstep::config {

std::vector<Key> software_keys() {
  return {
      KEY(software, preset,
          "A known training program whose choices hold where no key beside it says otherwise; \"\" is none: "
          "Lockstep's trainer.",
          optional, {.words = preset_names(PresetKind::software), .may_be_empty = true}),
      KEY(software, file,
          "Path of a file with a [software] table, whose keys hold where no key says otherwise; \"\" is "
          "none.",
          optional, {.may_be_empty = true}),
      KEY(software, attention,
          "Attention in one kernel (\"flash\"), or with its scores in memory, between batched products "
          "(\"scores\").",
          optional, {.words = {"flash", "scores"}}),
      KEY(software, dropout,
          "Whether a gpt model has dropout: of the embedding, of attention's weights, of both blocks.",
          optional),
      KEY(software, cross_entropy,
          "Kernels of the loss, by memory traffic of a logit, forward + backward: \"fused\" reads logits as "
          "they are (4 + 4 bytes in bf16), \"compiled\" from an fp32 copy (10 + 10), \"unfused\" one kernel "
          "an "
          "operation (34 + 26).",
          optional, {.words = {"fused", "compiled", "unfused"}}),
      KEY(software, gradient_dtype,
          "Type in which gradients are added up and reduced: \"fp32\" (fp64 in fp64 runs), or \"compute\", "
          "train.dtype.",
          optional, {.words = {"fp32", "compute"}}),
      KEY(software, overlap_gradients,
          "Whether gradients are reduced beside the backward passes that follow; else after the rank's last "
          "one.",
          optional),
      KEY(software, overlap_parameters,
          "zero = 1 or 2: whether a chunk's updated parameters are gathered beside the forwards before its "
          "first; else after the optimizer.",
          optional),
      KEY(software, recompute_early_stop,
          "Whether full recomputation stops before the layer's last product, whose output backward does not "
          "need.",
          optional),
      KEY(software, reduce_in_place,
          "zero = 1: whether reduced gradients lie in the buffer that backward passes add to, as in "
          "Megatron-LM's contiguous one; else beside it.",
          optional),
      KEY(software, fused_weight_gradients,
          "Whether the products that make weight gradients add to the accumulated ones themselves, as "
          "Transformer Engine's: no gradient in train.dtype comes before, but of each of a layer's matrices "
          "one "
          "stand-in of that type is kept for autograd.",
          optional),
      KEY(software, loss_memory,
          "Memory of the loss at its fullest, from the gradient of the logits until the output matrix has "
          "its own, bytes a logit; 0: the logits alone, for their gradient takes their place.",
          optional, {.low = 0, .high = 64}),
      KEY(software, memory_margin,
          "What a GPU holds besides tensors, as a share of them: what the allocator loses to fragmentation, "
          "the context, libraries' buffers. Not derived: plan and search add it.",
          optional, below_one),
      KEY(software, tensor_parallel_copies,
          "Whether a tensor-parallel collective copies its tensor once more, as where the sequence is not "
          "the "
          "outer dimension.",
          optional),
      KEY(software, tensor_parallel_overlap,
          "Share of the time of a layer's all-gathers and reduce-scatters over tp that is hidden behind the "
          "products they feed or follow.",
          optional, below_one),
      KEY(software, elementwise_traffic,
          "Bytes that memory-bound kernels of a layer move, over what fused ones do.", optional,
          {.low = 0.1, .high = 100}),
      KEY(software, dp_network_efficiency,
          "cluster.network_efficiency of data-parallel collectives and tied gradients; 0: the cluster's.",
          optional, {.low = 0, .high = 1}),
      KEY(software, host_seconds_per_launch,
          "What the host needs for each kernel or collective of a pass, seconds; a pass takes at least all "
          "of "
          "its launches'.",
          optional, seconds),
      KEY(software, host_seconds_per_micro_batch,
          "What the host needs besides for a micro-batch, over all chunks, half of it in forwards, seconds.",
          optional, seconds),
      KEY(software, host_skew,
          "How much longer, as a share, launches take the host where tensor-parallel ranks fill more than "
          "half "
          "a node.",
          optional, {.low = 0, .high = 10}),
  };
}

}  // namespace lockstep::config
