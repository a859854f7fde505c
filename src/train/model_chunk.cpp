#include "train/model_chunk.hpp"

#include "base/error.hpp"

namespace lockstep::train {

namespace {

at::Tensor view(const FlatLayout& flat, const at::Tensor& buffer, const std::string& name) {
  const FlatEntry& entry = flat.find(name);
  const at::Tensor part = buffer.narrow(0, entry.offset, entry.count);
  const bool vector = entry.parameter.family == model::Family::norm;
  return vector ? part : part.view({entry.local_rows, entry.local_cols});
}

// Neighbouring matrices with equal columns as one: rows of the first, then of the next.
at::Tensor stacked_view(const FlatLayout& flat, const at::Tensor& buffer, const std::string& first,
                        int count) {
  const auto& entries = flat.entries();
  size_t at = 0;
  while (entries[at].parameter.name != first) ++at;
  int64_t rows = 0;
  for (size_t i = at; i < at + static_cast<size_t>(count); ++i) rows += entries[i].local_rows;
  const int64_t cols = entries[at].local_cols;
  return buffer.narrow(0, entries[at].offset, rows * cols).view({rows, cols});
}

nn::LayerTensors layer_views(const FlatLayout& flat, const at::Tensor& buffer, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  return {view(flat, buffer, prefix + "input_layernorm.weight"),
          stacked_view(flat, buffer, prefix + "self_attn.q_proj.weight", 3),
          view(flat, buffer, prefix + "self_attn.o_proj.weight"),
          view(flat, buffer, prefix + "post_attention_layernorm.weight"),
          stacked_view(flat, buffer, prefix + "mlp.gate_proj.weight", 2),
          view(flat, buffer, prefix + "mlp.down_proj.weight")};
}

}  // namespace

ModelChunk::ModelChunk(const parallel::Layout& layout, int stage, int chunk, const nn::Context& context)
    : context_(context),
      content_(layout.chunk(stage, chunk)),
      recompute_(layout.layers().recompute),
      flat_(layout, stage, chunk, static_cast<int>(context.tp_rank())),
      tied_(layout.run().model.tie_embeddings) {}

namespace {

// The views of the layers, of the embedding, and of the head; nothing of an undefined buffer.
void bind_views(const FlatLayout& flat, const model::ChunkContent& content, bool tied,
                const at::Tensor& buffer, at::Tensor& embedding, std::vector<nn::LayerTensors>& layers,
                nn::HeadTensors& head) {
  layers.clear();
  embedding = at::Tensor();
  head = {};
  if (!buffer.defined()) return;
  if (content.embedding) embedding = view(flat, buffer, "model.embed_tokens.weight");
  for (int64_t i = 0; i < content.layers; ++i) {
    layers.push_back(layer_views(flat, buffer, content.first_layer + i));
  }
  if (!content.head) return;
  head = {view(flat, buffer, "model.norm.weight"),
          view(flat, buffer, tied ? "model.embed_tokens.weight" : "lm_head.weight")};
}

}  // namespace

void ModelChunk::set_weights(const at::Tensor& weights) {
  weights_ = weights;
  bind_views(flat_, content_, tied_, weights_, embedding_, layers_, head_);
}

void ModelChunk::set_gradients(const at::Tensor& gradients) {
  gradients_ = gradients;
  bind_views(flat_, content_, tied_, gradients_, embedding_gradient_, layer_gradients_, head_gradients_);
}

void ModelChunk::need(const at::Tensor& buffer, const char* what) const {
  if (buffer.defined()) return;
  throw RunError(std::string("the program computes a chunk whose ") + what + " are not there");
}

model::Recompute ModelChunk::recompute(size_t layer) const {
  return recompute_.at(content_.first_layer + static_cast<int64_t>(layer));
}

void ModelChunk::enter_layer(size_t layer) const {
  if (context_.log != nullptr)
    context_.log->set_layer(static_cast<int>(content_.first_layer) + static_cast<int>(layer));
}

void ModelChunk::leave_layers() const {
  if (context_.log != nullptr) context_.log->set_layer(-1);
}

ForwardOutput ModelChunk::run(const ForwardInput& input, Activations* kept) {
  need(weights_, "parameters");
  Activations dropped;
  Activations& all = kept != nullptr ? *kept : dropped;
  at::Tensor x = content_.embedding ? nn::embedding_forward(context_, embedding_, input.ids, all.embedding)
                                    : input.hidden;
  all.places = input.places;
  all.layers.resize(kept != nullptr ? layers_.size() : 0);
  for (size_t i = 0; i < layers_.size(); ++i) {
    enter_layer(i);
    nn::LayerActivations own;  // of an evaluation, which keeps nothing
    x = nn::layer_forward(context_, layers_[i], std::move(x), input.places,
                          kept != nullptr ? recompute(i) : model::Recompute{.full = true},
                          kept != nullptr ? all.layers[i] : own);
  }
  leave_layers();
  if (!content_.head) return {x, 0};
  return {{}, nn::head_forward(context_, head_, std::move(x), input.targets, all.head)};
}

ForwardOutput ModelChunk::forward(int micro_batch, const ForwardInput& input) {
  return run(input, &live_[micro_batch]);
}

ForwardOutput ModelChunk::evaluate(const ForwardInput& input) { return run(input, nullptr); }

ModelChunk::Activations ModelChunk::take_activations(int micro_batch) {
  auto node = live_.extract(micro_batch);
  if (!node.empty()) return std::move(node.mapped());
  throw RunError("the program has a backward of micro-batch " + std::to_string(micro_batch) +
                 " with no forward before it");
}

at::Tensor ModelChunk::backward(int micro_batch, at::Tensor dy) {
  need(weights_, "parameters");
  need(gradients_, "gradients");
  Activations kept = take_activations(micro_batch);
  if (content_.head) {
    nn::HeadStash stash;
    dy = nn::head_backward_input(context_, head_, std::move(kept.head), head_gradients_, stash);
    nn::head_backward_weight(context_, std::move(stash), head_gradients_);
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    enter_layer(i);
    nn::WeightStash stash;
    dy = nn::layer_backward_input(context_, layers_[i], std::move(kept.layers[i]), std::move(dy), kept.places,
                                  recompute(i), layer_gradients_[i], stash);
    nn::layer_backward_weight(context_, layers_[i], std::move(stash), recompute(i), layer_gradients_[i]);
  }
  leave_layers();
  if (!content_.embedding) return dy;
  nn::embedding_backward(context_, std::move(kept.embedding), std::move(dy), embedding_gradient_);
  return {};
}

// The norms' gradients come with the input's; they wait in the stash, so that a reduction between the halves
// holds whole micro-batches.
at::Tensor ModelChunk::backward_input(int micro_batch, at::Tensor dy) {
  need(weights_, "parameters");
  Activations kept = take_activations(micro_batch);
  Stash& stash = stashed_[micro_batch];
  const auto norm_gradient = [&] {
    return at::zeros({context_.shape.hidden}, at::TensorOptions(context_.gradient_dtype));
  };
  if (content_.head) {
    nn::HeadGradients norm{norm_gradient(), {}};
    dy = nn::head_backward_input(context_, head_, std::move(kept.head), norm, stash.head);
    stash.head_norm_gradient = norm.norm;
  }
  stash.layers.resize(layers_.size());
  stash.norm_gradients.resize(layers_.size());
  for (size_t i = layers_.size(); i-- > 0;) {
    enter_layer(i);
    nn::LayerGradients& norms = stash.norm_gradients[i];
    norms.attention_norm = norm_gradient();
    norms.ffn_norm = norm_gradient();
    dy = nn::layer_backward_input(context_, layers_[i], std::move(kept.layers[i]), std::move(dy), kept.places,
                                  recompute(i), norms, stash.layers[i]);
  }
  leave_layers();
  if (!content_.embedding) return dy;
  stash.embedding = std::move(kept.embedding);
  stash.embedding_gradient = std::move(dy);
  return {};
}

void ModelChunk::backward_weight(int micro_batch) {
  need(weights_, "parameters");
  need(gradients_, "gradients");
  auto node = stashed_.extract(micro_batch);
  if (node.empty()) {
    throw RunError("the program has weight gradients of micro-batch " + std::to_string(micro_batch) +
                   " without its input's before them");
  }
  Stash& stash = node.mapped();
  if (content_.head) {
    head_gradients_.norm.add_(stash.head_norm_gradient);
    nn::head_backward_weight(context_, std::move(stash.head), head_gradients_);
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    enter_layer(i);
    layer_gradients_[i].attention_norm.add_(stash.norm_gradients[i].attention_norm);
    layer_gradients_[i].ffn_norm.add_(stash.norm_gradients[i].ffn_norm);
    nn::layer_backward_weight(context_, layers_[i], std::move(stash.layers[i]), recompute(i),
                              layer_gradients_[i]);
  }
  leave_layers();
  if (content_.embedding) {
    nn::embedding_backward(context_, std::move(stash.embedding), std::move(stash.embedding_gradient),
                           embedding_gradient_);
  }
}

int64_t ModelChunk::live_bytes() const {
  int64_t bytes = 0;
  for (const auto& [mb, kept] : live_) {
    bytes += kept.embedding.bytes() + kept.head.bytes();
    for (const nn::LayerActivations& layer : kept.layers) bytes += layer.bytes();
  }
  for (const auto& [mb, stash] : stashed_) {
    bytes += stash.embedding.bytes() + stash.head.bytes();
    if (stash.embedding_gradient.defined()) bytes += static_cast<int64_t>(stash.embedding_gradient.nbytes());
    for (const nn::WeightStash& layer : stash.layers) bytes += layer.bytes();
  }
  return bytes;
}

}  // namespace lockstep::train
