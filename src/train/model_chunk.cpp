#include "train/model_chunk.hpp"

#include "base/error.hpp"

namespace lockstep::train {

namespace {

at::Tensor view(const FlatLayout& flat, const at::Tensor& buffer, const std::string& name) {
  const FlatEntry& entry = flat.find(name);
  const at::Tensor part = buffer.narrow(0, entry.offset, entry.count);
  return entry.parameter.cols == 1 ? part : part.view({entry.local_rows, entry.local_cols});
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
    : context_(context), flat_(layout, stage, chunk, static_cast<int>(context.tp_rank())) {
  weights_ = at::zeros({flat_.padded()}, context.dtype);
  gradients_ = at::zeros({flat_.padded()}, context.gradient_dtype);
  bind_views(layout.chunk(stage, chunk));
}

void ModelChunk::bind_views(const model::ChunkContent& content) {
  if (content.embedding) {
    embedding_ = view(flat_, weights_, "model.embed_tokens.weight");
    embedding_gradient_ = view(flat_, gradients_, "model.embed_tokens.weight");
  }
  for (int64_t i = 0; i < content.layers; ++i) {
    layers_.push_back(layer_views(flat_, weights_, content.first_layer + i));
    layer_gradients_.push_back(layer_views(flat_, gradients_, content.first_layer + i));
  }
  if (content.head) {
    head_ = {view(flat_, weights_, "model.norm.weight"), view(flat_, weights_, "lm_head.weight")};
    head_gradients_ = {view(flat_, gradients_, "model.norm.weight"),
                       view(flat_, gradients_, "lm_head.weight")};
  }
}

ForwardOutput ModelChunk::run(const ForwardInput& input, Activations& kept) {
  at::Tensor x =
      embedding_ ? nn::embedding_forward(context_, *embedding_, input.ids, kept.embedding) : input.hidden;
  kept.layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) x = nn::layer_forward(context_, layers_[i], x, kept.layers[i]);
  if (!head_) return {x, 0};
  return {{}, nn::head_forward(context_, *head_, x, input.targets, kept.head)};
}

ForwardOutput ModelChunk::forward(int micro_batch, const ForwardInput& input) {
  return run(input, live_[micro_batch]);
}

ForwardOutput ModelChunk::evaluate(const ForwardInput& input) {
  Activations dropped;
  return run(input, dropped);
}

at::Tensor ModelChunk::backward(int micro_batch, at::Tensor dy, double loss_scale) {
  auto node = live_.extract(micro_batch);
  if (node.empty()) {
    throw RunError("the program has a backward of micro-batch " + std::to_string(micro_batch) +
                   " with no forward before it");
  }
  Activations& kept = node.mapped();
  if (head_) dy = nn::head_backward(context_, *head_, std::move(kept.head), loss_scale, *head_gradients_);
  for (size_t i = layers_.size(); i-- > 0;) {
    nn::WeightStash stash;
    dy = nn::layer_backward_input(context_, layers_[i], std::move(kept.layers[i]), dy, layer_gradients_[i],
                                  stash);
    nn::layer_backward_weight(context_, std::move(stash), layer_gradients_[i]);
  }
  if (!embedding_) return dy;
  nn::embedding_backward(context_, std::move(kept.embedding), dy, *embedding_gradient_);
  return {};
}

}  // namespace lockstep::train
