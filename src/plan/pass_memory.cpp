#include "plan/pass_memory.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "model/attention_ops.hpp"

namespace lockstep::plan {

namespace {

using Kind = parallel::ActionKind;
using model::Keeps;
using model::Recompute;

// Walks through a pass as nn computes it, tensor by tensor. Letters as in model/shape.hpp.
class Walk {
 public:
  Walk(const model::ShardShape& s, bool half_precision, const config::SoftwareConfig& software)
      : s_(s),
        half_precision_(half_precision),
        fused_weight_gradients_(software.fused_weight_gradients),
        loss_(loss_bytes(s, software)),
        shard_(s.tokens_sharded * s.hidden * s.element_bytes),
        full_(s.tokens * s.hidden * s.element_bytes),
        qkv_(s.tokens * s.qkv_width() * s.element_bytes),
        head_output_(s.tokens * s.heads * s.head_dim * s.element_bytes),
        statistics_(model::attention_kept_bytes(s)),
        scores_(s.scores ? s.score_elements() * s.element_bytes : 0),
        own_keys_(s.tokens * s.kv_width() * s.element_bytes),
        all_keys_(s.tokens_all() * s.kv_width() * s.element_bytes),
        ffn_(s.tokens * s.ffn * s.element_bytes),
        activation_input_(s.tokens * s.activation_width() * s.element_bytes),
        mask_(model::dropout_mask_bytes(s)),
        logits_(s.tokens * s.vocab * s.element_bytes),
        kept_logits_(s.tokens * s.vocab * model::logit_bytes(s)),
        ids_(s.tokens * int64_t{8}) {}

  PassMemory result() const { return {peak_, now_}; }

  void embedding_forward() {
    add(ids_);
    add(full_);
    reduce();
    if (!s_.gpt) return;
    add_residual();  // with positions
    if (s_.dropout) add_residual();
    add(mask_);
  }
  void embedding_backward() {
    drop(mask_);
    if (s_.sequence_parallel) {
      add(full_);
      drop(shard_);
    }
    drop(full_);
    drop(ids_);
  }

  void layer_forward(const Recompute& r) {
    const Keeps keeps(r, s_.scores);
    attention_block(keeps, false);
    ffn_block(keeps);
    add(full_);
    if (!keeps.activation) drop(ffn_);
    reduce();
    add_residual();
    add(mask_);
    if (!keeps.rest) drop(shard_ + 2 * mask_);  // the second norm's input, and masks
    if (r.second_products) add(model::kept_products_bytes(s_));
  }

  // Leaves the stash.
  void layer_backward_input(const Recompute& r) {
    const bool norm_again = r.norm && !r.full;
    if (r.second_products) drop(model::kept_products_bytes(s_) + head_output_ + statistics_);  // used again
    if (r.full) {
      const Keeps all({}, s_.scores);
      attention_block(all, true);
      ffn_block(all);
      add(mask_);
      if (!s_.recompute_early_stop) output_again();
    }
    gather();
    dropout_backward();
    add(ffn_);
    if (r.activation && !r.full) add(ffn_);
    add(activation_input_);
    drop(activation_input_);
    drop(ffn_);
    add(full_);
    reduce();
    norm_backward(!norm_again);
    if (s_.sequence_parallel) drop(shard_);  // the output's gradient; without, the stash has it

    gather();
    dropout_backward();
    add(head_output_);
    if (!r.full) gather_keys();
    if (r.attention && !r.full) {
      core_forward();
      if (s_.scores) drop(head_output_);  // it was kept
    }
    attention_backward();
    add(full_);
    reduce();
    norm_backward(!norm_again);
    if (s_.sequence_parallel) drop(shard_);  // the residual's gradient
  }

  // Frees the stash.
  void layer_backward_weight(const Recompute& r) {
    const bool norm_again = r.norm && !r.full;
    weight_gradient(s_.hidden * s_.ffn);
    drop(full_ + ffn_);
    product_input_again(norm_again);
    weight_gradient(s_.activation_width() * s_.hidden);
    drop(activation_input_ + gathered_input());
    weight_gradient(s_.hidden * s_.heads * s_.head_dim);
    drop(full_ + head_output_);
    product_input_again(norm_again);
    weight_gradient(s_.qkv_width() * s_.hidden);
    drop(qkv_ + gathered_input());
  }

  void head_forward() {
    add(ids_);  // targets
    product(true, logits_);
    if (kept_logits_ != logits_) {  // an fp32 copy takes their place
      add(kept_logits_);
      drop(logits_);
    }
    add(s_.tokens * s_.statistic_bytes);
    add(2 * s_.tokens * s_.statistic_bytes);
    drop(2 * s_.tokens * s_.statistic_bytes);
  }
  void head_backward_input() {
    drop(ids_ + s_.tokens * s_.statistic_bytes);
    if (kept_logits_ != logits_) {
      add(logits_);
      drop(kept_logits_);
    }
    add(loss_);
    add(full_);
    reduce();
    norm_backward(true);
  }
  void head_backward_weight() {
    if (s_.sequence_parallel && !s_.keep_gathered) add(full_);
    own_weight_gradient(s_.vocab * s_.hidden);
    if (s_.sequence_parallel && !s_.keep_gathered) drop(shard_);
    drop(loss_ + logits_ + gathered_input());
  }

  void add(int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void drop(int64_t bytes) { now_ -= bytes; }

 private:
  // A column-parallel product's input, as the product reads it.
  int64_t gathered_input() const { return full_; }
  void gather() {
    if (s_.sequence_parallel) add(full_);
  }
  // A row-parallel product's output becomes the sum over tp, or a shard of it.
  void reduce() {
    if (!s_.sequence_parallel) return;
    add(shard_);
    drop(full_);
  }
  void add_residual() {
    add(shard_);
    drop(shard_);
  }
  // A norm, its output gathered, and the product of that. `keep`: the product's input outlives it.
  void product(bool keep, int64_t output) {
    const bool keep_shard = keep && !s_.keep_gathered, keep_full = keep && s_.keep_gathered;
    add(shard_);
    if (!s_.sequence_parallel) {
      add(output);
      if (!keep) drop(shard_);
      return;
    }
    add(full_);
    if (!keep_shard) drop(shard_);
    add(output);
    if (!keep_full) drop(full_);
  }
  void gather_keys() {
    if (s_.cp == 1) return;
    add(own_keys_);
    add(all_keys_);
    drop(own_keys_);
  }
  void attention_block(const Keeps& keeps, bool keep_keys) {
    product(keeps.norm, qkv_);
    gather_keys();
    core_forward();
    if (!keeps.rest) drop(qkv_);
    if (!keep_keys && s_.cp > 1) drop(all_keys_);
    if (!keeps.attention) drop(statistics_);
    add(full_);
    if (!keeps.attention_output) drop(head_output_);
    reduce();
    add_residual();
    add(mask_);
  }
  void ffn_block(const Keeps& keeps) {
    product(keeps.norm, activation_input_);
    add(ffn_);
    if (!keeps.rest) drop(activation_input_);
  }
  // Attention's output and what it keeps beside it. Scores in memory are gone once the softmax has them.
  void core_forward() {
    if (!s_.scores) add(head_output_);
    add(scores_);
    add(s_.scores ? scores_ : statistics_);
    drop(scores_);
    if (!s_.scores) return;
    add(statistics_ - scores_);  // dropout's mask and output
    add(head_output_);
  }
  void output_again() {
    add(full_);
    reduce();
    add_residual();
    drop(shard_);
  }
  void dropout_backward() {
    if (!s_.dropout) return;
    add_residual();  // the gradient of what was dropped out, for the gradient
    drop(mask_);
  }
  void attention_backward() {
    add(2 * scores_);  // the gradients of the weights and of the scores
    drop(scores_);
    add(qkv_);
    drop(scores_);
    if (s_.cp == 1) {
      drop(qkv_ + statistics_ + head_output_);
      return;
    }
    const int64_t gradient = s_.tokens_all() * s_.kv_width() * s_.statistic_bytes;
    add(gradient);
    drop(qkv_ + all_keys_ + statistics_ + head_output_);
    add(gradient / s_.cp);
    drop(gradient);
    drop(gradient / s_.cp);
  }
  // The gradient of the norm's output becomes that of its input.
  void norm_backward(bool frees_input) {
    add(shard_);
    if (frees_input) drop(shard_);
    drop(shard_);
  }
  void product_input_again(bool norm_again) {
    if (norm_again) add_residual();  // the norm's output for its input
    if (s_.sequence_parallel && !s_.keep_gathered) {
      add(full_);
      drop(shard_);
    }
  }
  // In half precision the product is a matrix of its own before it is added to the gradient.
  void weight_gradient(int64_t elements) {
    if (!fused_weight_gradients_) own_weight_gradient(elements);
  }
  void own_weight_gradient(int64_t elements) {
    if (!half_precision_) return;
    add(elements * s_.element_bytes);
    drop(elements * s_.element_bytes);
  }

  // What the loss holds beyond the logits in the dtype of compute.
  static int64_t loss_bytes(const model::ShardShape& s, const config::SoftwareConfig& software) {
    const double beyond = software.loss_memory - static_cast<double>(s.element_bytes);
    return std::llround(std::max(0.0, beyond) * static_cast<double>(s.tokens * s.vocab));
  }

  const model::ShardShape& s_;
  bool half_precision_, fused_weight_gradients_;
  int64_t loss_;
  int64_t shard_, full_;  // a hidden state: of this rank's tokens, of all
  int64_t qkv_, head_output_, statistics_, scores_, own_keys_, all_keys_, ffn_, activation_input_, mask_;
  int64_t logits_, kept_logits_, ids_;
  int64_t now_ = 0, peak_ = 0;
};

class ChunkWalk {
 public:
  ChunkWalk(const parallel::Layout& layout, int stage, int chunk)
      : content_(layout.chunk(stage, chunk)),
        recompute_(layout.layers().recompute),
        walk_(layout.shape(), layout.shape().element_bytes < layout.shape().state_bytes,
              layout.run().software) {}

  PassMemory of(Kind pass) {
    switch (pass) {
      case Kind::forward:
        forward();
        break;
      case Kind::backward:
        backward();
        break;
      case Kind::backward_input:
        backward_input();
        break;
      case Kind::backward_weight:
        backward_weight();
        break;
      default:
        throw std::invalid_argument("only passes hold tensors while they run");
    }
    return walk_.result();
  }

 private:
  Recompute recompute(int64_t layer) const { return recompute_.at(content_.first_layer + layer); }

  void forward() {
    if (content_.embedding) walk_.embedding_forward();
    for (int64_t i = 0; i < content_.layers; ++i) walk_.layer_forward(recompute(i));
    if (content_.head) walk_.head_forward();
  }
  void backward() {
    if (content_.head) {
      walk_.head_backward_input();
      walk_.head_backward_weight();
    }
    for (int64_t i = content_.layers; i-- > 0;) {
      walk_.layer_backward_input(recompute(i));
      walk_.layer_backward_weight(recompute(i));
    }
    if (content_.embedding) walk_.embedding_backward();
  }
  void backward_input() {
    if (content_.head) walk_.head_backward_input();
    for (int64_t i = content_.layers; i-- > 0;) walk_.layer_backward_input(recompute(i));
  }
  void backward_weight() {
    if (content_.head) walk_.head_backward_weight();
    for (int64_t i = content_.layers; i-- > 0;) walk_.layer_backward_weight(recompute(i));
    if (content_.embedding) walk_.embedding_backward();
  }

  const model::ChunkContent& content_;
  const Recompute& recompute_;
  Walk walk_;
};

}  // namespace

PassMemory pass_memory(const parallel::Layout& layout, int stage, Kind pass, int chunk) {
  return ChunkWalk(layout, stage, chunk).of(pass);
}

int64_t waiting_norm_bytes(const parallel::Layout& layout, int stage, int chunk) {
  const model::ChunkContent& content = layout.chunk(stage, chunk);
  const model::ShardShape& s = layout.shape();
  const int64_t norms = 2 * content.layers + (content.head ? 1 : 0);
  int64_t elements = norms * s.hidden;
  // Their biases, and those of all products.
  if (s.gpt) elements += norms * s.hidden + content.layers * (s.qkv_width() + s.ffn + 2 * s.hidden);
  return elements * s.gradient_bytes;
}

}  // namespace lockstep::plan
