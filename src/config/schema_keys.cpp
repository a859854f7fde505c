// The table of keys. Nothing else in the program lists them.
#include <algorithm>
#include <array>

#include "config/key_table.hpp"
#include "config/presets.hpp"
#include "config/schema.hpp"

namespace lockstep::config {
namespace {

std::vector<Key> model_keys() {
  return {
      KEY(model, preset,
          "A known model whose figures hold where no key beside it says otherwise; \"\" is none.", optional,
          {.words = preset_names(PresetKind::model), .may_be_empty = true}),
      KEY_NOT_BUILT(model, hf, "Path of a Hugging Face config.json to take the model from."),
      KEY(model, architecture,
          "Kind of transformer: \"llama\"; or \"gpt\", with biases, LayerNorm, learned positions and GELU, "
          "which is "
          "modelled and not trained.",
          optional, {.words = {"llama", "gpt"}}),
      KEY(model, layers, "Transformer layers.", or_preset, count),
      KEY(model, hidden, "Width of the residual stream.", or_preset, dimension),
      KEY(model, ffn, "Inner width of the feed-forward block.", or_preset, dimension),
      KEY(model, heads, "Query heads of attention.", or_preset, count),
      KEY(model, kv_heads, "Key and value heads of attention (grouped-query when fewer than heads).",
          or_preset, count),
      KEY(model, vocab,
          "Rows of the embedding table; may exceed the tokenizer's tokens, not fall short of them.",
          or_preset, dimension),
      KEY(model, rope_theta, "Base of the rotary position angles.", optional, positive),
      KEY(model, norm_eps, "Added to the mean square in RMSNorm.", optional, epsilon),
      KEY(model, init_std, "Standard deviation of the initial weights.", optional, positive),
      KEY(model, tie_embeddings,
          "Whether the output matrix is the embedding, one set of weights; of a gpt model it is unless this "
          "says "
          "otherwise.",
          optional),
      KEY(model, positions, "Rows of a gpt model's table of positions; 0 takes train.sequence.", optional,
          {.low = 0, .high = 1 << 28}),
  };
}

std::vector<std::string> rank_orders() {
  std::vector<std::string> axes = {"tp", "cp", "pp", "dp"}, orders;
  std::array<size_t, 4> order = {0, 1, 2, 3};
  do {
    orders.push_back(axes[order[0]] + "-" + axes[order[1]] + "-" + axes[order[2]] + "-" + axes[order[3]]);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

std::vector<Key> parallel_keys() {
  return {
      KEY(parallel, tp, "Tensor-parallel ranks: a layer's matrices are cut between them.", optional, mesh),
      KEY(parallel, cp, "Context-parallel ranks: a sequence is cut between them.", optional, mesh),
      KEY(parallel, pp, "Pipeline-parallel ranks: the layers are cut between them.", optional, mesh),
      KEY(parallel, dp, "Data-parallel replicas: the batch is cut between them.", optional,
          {.low = 1, .high = 1 << 20}),
      KEY(parallel, schedule, "Order of forward and backward passes in the pipeline.", optional,
          {.words = {"gpipe", "1f1b", "interleaved", "zb-h1"}}),
      KEY(parallel, virtual_stages, "Chunks of layers that one pipeline rank holds (interleaved schedule).",
          optional, {.low = 1, .high = 1 << 10}),
      KEY(parallel, first_stage_less_layers, "Layers taken from the first chunk, which holds the embedding.",
          optional, {.low = 0, .high = 1 << 16}),
      KEY(parallel, last_stage_less_layers, "Layers taken from the last chunk, which holds the output.",
          optional, {.low = 0, .high = 1 << 16}),
      KEY(parallel, layer_split,
          "How layers are dealt to chunks: \"even\", as many to each but for first_ and "
          "last_stage_less_layers; or "
          "\"cost\", so that the costliest stage, output matrix included, costs least.",
          optional, {.words = {"even", "cost"}}),
      KEY(parallel, replicas,
          "Logical data-parallel replicas, at least dp; 0 takes dp. Any dp gives bitwise the same weights.",
          optional, {.low = 0, .high = 1 << 20}),
      KEY(parallel, micro_batch, "Sequences of one micro-batch.", optional, count),
      KEY(parallel, sequence_parallel,
          "Whether norms are cut along the sequence between tensor-parallel ranks.", optional),
      KEY(parallel, zero,
          "What the ranks of dp x cp share out: 0 nothing, 1 optimizer, 2 + gradients, 3 + parameters, "
          "gathered a "
          "chunk at a time (more virtual_stages make smaller chunks).",
          optional, {.low = 0, .high = 3}),
      KEY(parallel, reshard_after_forward,
          "zero = 3: whether a chunk's gathered parameters are freed when none of the rank's next two passes "
          "needs "
          "them; else they stay from its first forward to its last backward.",
          optional),
      KEY(parallel, gradient_scatter,
          "zero = 2 or 3: gradients are scattered once per \"chunk\", after its last micro-batch, or at "
          "every "
          "\"micro_batch\", which needs less memory where a rank has several chunks.",
          optional, {.words = {"chunk", "micro_batch"}}),
      KEY(parallel, gathered_input,
          "With sequence parallel: the gathered input of a matrix product is kept for its weight gradient "
          "(\"keep\"), or its shard alone, and gathered again (\"gather_again\").",
          optional, {.words = {"gather_again", "keep"}}),
      KEY(parallel, recompute,
          "Ops computed again in backward instead of kept: \"none\", \"full\", or a list (\"gelu\" of gpt "
          "models, \"swiglu\" "
          "of llama's; \"second_products\", of llama models: all but attention and every second product).",
          optional,
          {.words = {"norm", "swiglu", "gelu", "attention", "second_products"},
           .short_forms = {{"none", {}}, {"full", {"full"}}}}),
      KEY(parallel, recompute_every,
          "Of the model's layers every so many recompute, from the first on; the others keep all.", optional,
          count),
      KEY(parallel, rank_order,
          "Mesh axes from the innermost to the outermost; neighbours on the innermost have neighbouring "
          "ranks.",
          optional, {.words = rank_orders()}),
  };
}

std::vector<Key> train_keys() {
  return {
      KEY(train, sequence, "Tokens of one sequence.", optional, {.low = 1, .high = 1 << 28}),
      KEY(train, global_batch, "Sequences of one step, over all replicas.", optional,
          {.low = 1, .high = 1LL << 32}),
      KEY(train, batch_ramp,
          "Smaller batches for the first steps: a list of \"SEQUENCES:LAST_STEP\", ascending; global_batch "
          "after "
          "them.",
          optional),
      KEY(train, steps, "Optimizer steps.", optional, {.low = 1, .high = 1e12}),
      KEY(train, tokens,
          "Tokens of the whole training, batch_ramp's first, for days and cost; 0 takes what the steps read.",
          optional, {.low = 0, .high = 9007199254740992.0}),
      KEY(train, optimizer, "Optimizer.", optional, {.words = {"adamw", "sgd"}}),
      KEY(train, dtype, "Type of compute; weights, gradients and sums are fp32 under bf16.", optional,
          {.words = {"bf16", "fp32", "fp64"}}),
      KEY(train, lr, "Learning rate after the warm-up.", optional, positive),
      KEY(train, lr_min_ratio, "The learning rate ends at this share of lr.", optional,
          {.low = 0, .high = 1}),
      KEY(train, warmup, "Steps of linear warm-up; may exceed steps.", optional, steps),
      KEY(train, schedule,
          "How the learning rate falls after the warm-up; \"wsd\" is constant until the last decay_steps, "
          "then "
          "linear.",
          optional, {.words = {"cosine", "linear", "wsd", "constant"}}),
      KEY(train, decay_steps, "Steps of the fall at the end of \"wsd\"; 0 takes a tenth of the steps.",
          optional, steps),
      KEY(train, grad_clip, "Gradients are scaled to this global norm when above it; 0 never.", optional,
          not_negative),
      KEY(train, beta1, "AdamW's decay of the first moment.", optional, below_one),
      KEY(train, beta2, "AdamW's decay of the second moment.", optional, below_one),
      KEY(train, eps, "AdamW's epsilon.", optional, epsilon),
      KEY(train, momentum, "SGD's momentum.", optional, below_one),
      KEY(train, weight_decay, "Weight decay: decoupled for AdamW, added to the gradient for SGD.", optional,
          not_negative),
      KEY(train, no_decay, "Parameters without weight decay.", optional,
          {.words = {"norm", "embedding", "output"}, .short_forms = {{"none", {}}}}),
      KEY(train, seed, "Seed of initial weights and sample order.", optional, seed),
      KEY(train, nonfinite,
          "What a step does whose loss or gradient is NaN or infinite: \"stop\" the run, or \"skip\" the "
          "step; ten "
          "in a row stop it.",
          optional, {.words = {"stop", "skip"}}),
      KEY(train, eval_interval, "Steps between evaluations; 0 evaluates at the end alone.", optional, steps),
      KEY(train, eval_sequences, "Held-out sequences scored in an evaluation; 0 scores all.", optional,
          steps),
      KEY(train, timeout_seconds, "Longest wait for one collective or message, seconds.", optional,
          {.low = 1, .high = 1e6}),
      KEY(train, trace_first_step, "First step whose spans are traced.", optional, {.low = 1, .high = 1e12}),
      KEY(train, trace_steps, "Steps whose spans are traced; 0 traces none.", optional, steps),
  };
}

std::vector<Key> other_keys() {
  return {
      KEY(data, text,
          "Folder of .txt documents, at least one to learn from and one held out; looked for beside the "
          "run file, then in the folders above it and the current one.",
          optional, {.may_be_empty = true}),
      KEY(data, held_out,
          "Names, without .txt, of documents kept for evaluation; training needs at least one.", optional),
      KEY(data, document_mask,
          "Whether attention stays inside a document, with positions that restart there, and the border is "
          "not "
          "learnt.",
          optional),
      KEY(data, prefetch,
          "Whether a batch is read while the step before it runs, and only the rest waited for; training "
          "always does.",
          optional),
      KEY_NOT_BUILT(data, shards, "Token shards that `data prepare` wrote, in place of text."),
      KEY(data, tokenizer, "\"byte\": one token a byte; or a tokenizer file.", optional,
          {.words = {"byte"}, .others_later = true}),
      KEY(checkpoint, interval,
          "Steps between checkpoints; 0 never, \"auto\" from measured cost and failures.", optional,
          {.low = 0, .high = 1e12, .built = {{0, 0}}, .later = {"auto"}}),
      KEY(simulate, jitter, "Whether ranks and ops vary in speed.", optional),
      KEY(simulate, op_jitter, "Relative standard deviation of one op's time.", optional, below_one),
      KEY(simulate, rank_jitter, "Relative standard deviation of a rank's speed.", optional, below_one),
      KEY(simulate, tail_probability, "Probability that an op is a straggler.", optional, below_one),
      KEY(simulate, tail_factor, "A straggling op takes so many times as long.", optional,
          {.low = 1, .high = 1e6}),
      KEY(simulate, garbage_collection_seconds,
          "How long a rank's host stops for garbage collection, at a moment of its own; 0 never.", optional,
          seconds),
      KEY(simulate, garbage_collection_interval, "Steps between a rank's garbage collections.", optional,
          {.low = 1, .high = 1e12}),
      KEY(simulate, retransmit_probability,
          "Probability that a collective or message between nodes loses a packet, whatever its bytes.",
          optional, below_one),
      KEY(simulate, retransmit_seconds, "What a lost packet costs.", optional, seconds),
      KEY(simulate, throttled_nodes, "Share of the nodes that are too hot.", optional, {.low = 0, .high = 1}),
      KEY(simulate, throttle_factor, "Kernels of a node that is too hot take so many times as long.",
          optional, {.low = 1, .high = 1e6}),
      KEY(simulate, daily_heat,
          "How much longer, as a share, kernels take at three in the afternoon than at three at night.",
          optional, {.low = 0, .high = 1}),
      KEY(simulate, hour, "Hour of the day that is simulated.", optional, {.low = 0, .high = 24}),
      KEY(simulate, slow,
          "Ranks whose kernels take `factor` times as long, as [{ rank = 7312, factor = 1.3 }].", optional,
          slow_ranks),
      KEY(simulate, slow_links, "Ranks whose link out of the node is `factor` times slower.", optional,
          slow_ranks),
      KEY(simulate, seed,
          "Seed of the jitter, and of the hash that deals flows to rack_uplinks and pod_uplinks.", optional,
          seed),
  };
}

std::vector<Key> all_keys() {
  std::vector<Key> keys = {Key{"",
                               "name",
                               "Name of the run; its folder is called after it.",
                               LOCKSTEP_FIELD(name),
                               required,
                               {.file_name = true}}};
  for (auto& part :
       {model_keys(), cluster_keys(), parallel_keys(), train_keys(), software_keys(), other_keys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

}  // namespace

const std::vector<Key>& schema() {
  static const std::vector<Key> keys = all_keys();
  return keys;
}

const std::vector<std::string>& later_tables() {
  static const std::vector<std::string> tables = {"resilience", "campaign", "power", "diloco", "wan"};
  return tables;
}

}  // namespace lockstep::config
