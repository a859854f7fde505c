#include "chunk.hpp"

namespace lockstep::nn::test {

namespace {

LayerTensors layer_weights(const Context& ctx, const Case& c, uint64_t seed) {
  const model::ShardShape& s = ctx.shape;
  const auto matrix = [&](int64_t rows, int64_t cols, uint64_t number) {
    const double std = 1.0 / std::sqrt(static_cast<double>(s.hidden));
    return random_tensor(c, {rows, cols}, std, seed + number).to(ctx.dtype);
  };
  return {at::ones({s.hidden}, ctx.dtype),
          matrix(s.qkv_width(), s.hidden, 1),
          matrix(s.hidden, s.heads * s.head_dim, 2),
          at::ones({s.hidden}, ctx.dtype),
          matrix(2 * s.ffn, s.hidden, 3),
          matrix(s.hidden, s.ffn, 4)};
}

}  // namespace

Chunk::Chunk(const Context& ctx, const Case& c, const model::ChunkContent& content,
             const model::Recompute& recompute)
    : ctx_(ctx), case_(c), content_(content), recompute_(recompute), places_(places_of(ctx, c)) {
  const uint64_t seed = 1000 * (rank_of(ctx) + 1);
  const auto zeros = [&](const at::Tensor& t) { return at::zeros(t.sizes(), ctx.gradient_dtype); };
  const auto vocabulary = [&](uint64_t number) {
    return random_tensor(c, {ctx.shape.vocab, ctx.shape.hidden}, 0.3, seed + number).to(ctx.dtype);
  };
  if (content.embedding) {
    embedding_ = vocabulary(1);
    embedding_gradient_ = zeros(embedding_);
  }
  for (int64_t i = 0; i < content.layers; ++i) {
    layers_.push_back(layer_weights(ctx, c, seed + 10 * static_cast<uint64_t>(i + 1)));
    layer_gradients_.push_back(map(layers_.back(), zeros));
  }
  if (content.head) {
    head_ = {at::ones({ctx.shape.hidden}, ctx.dtype), vocabulary(2)};
    head_gradients_ = {zeros(head_.norm), zeros(head_.output)};
  }
  kept_.resize(layers_.size());
  stash_.resize(layers_.size());
}

model::Recompute Chunk::recompute_of(size_t i) const {
  return recompute_.at(content_.first_layer + static_cast<int64_t>(i));
}
void Chunk::enter(size_t i) const {
  ctx_.log->set_layer(static_cast<int>(content_.first_layer + static_cast<int64_t>(i)));
}
void Chunk::leave() const { ctx_.log->set_layer(-1); }

at::Tensor Chunk::tokens(uint64_t seed) const {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  const at::Tensor all = at::randint(0, case_.vocab, {case_.tokens()}, generator, at::kLong);
  return own_tokens(case_, all, ctx_.cp_rank());
}
at::Tensor Chunk::hidden(uint64_t seed) const {
  const at::Tensor all = random_tensor(case_, {case_.tokens(), case_.hidden()}, 1.0, seed);
  return shard_tokens(ctx_, case_, all).to(ctx_.dtype);
}

void Chunk::forward() {
  at::Tensor x =
      content_.embedding ? embedding_forward(ctx_, embedding_, tokens(1), kept_embedding_) : hidden(1);
  for (size_t i = 0; i < layers_.size(); ++i) {
    enter(i);
    x = layer_forward(ctx_, layers_[i], std::move(x), places_, recompute_of(i), kept_[i]);
  }
  leave();
  if (content_.head) loss_ = head_forward(ctx_, head_, std::move(x), tokens(2), kept_head_);
  if (!content_.head) d_ = hidden(2);
}

void Chunk::head_input_half() {
  if (content_.head)
    d_ = head_backward_input(ctx_, head_, std::move(kept_head_), head_gradients_, head_stash_);
}
void Chunk::head_weight_half() {
  if (content_.head) head_backward_weight(ctx_, std::move(head_stash_), head_gradients_);
}
void Chunk::layer_input_half(size_t i) {
  enter(i);
  d_ = layer_backward_input(ctx_, layers_[i], std::move(kept_[i]), std::move(d_), places_, recompute_of(i),
                            layer_gradients_[i], stash_[i]);
  leave();
}
void Chunk::layer_weight_half(size_t i) {
  enter(i);
  layer_backward_weight(ctx_, layers_[i], std::move(stash_[i]), recompute_of(i), layer_gradients_[i]);
  leave();
}
void Chunk::embedding_weight_half() {
  if (content_.embedding) {
    embedding_backward(ctx_, std::move(kept_embedding_), std::move(d_), embedding_gradient_);
  }
}

void Chunk::backward() {
  head_input_half();
  head_weight_half();
  for (size_t i = layers_.size(); i-- > 0;) {
    layer_input_half(i);
    layer_weight_half(i);
  }
  embedding_weight_half();
}

void Chunk::backward_input() {
  head_input_half();
  for (size_t i = layers_.size(); i-- > 0;) layer_input_half(i);
}

void Chunk::backward_weight() {
  head_weight_half();
  for (size_t i = layers_.size(); i-- > 0;) layer_weight_half(i);
  embedding_weight_half();
}

int64_t Chunk::activation_bytes() const {
  int64_t bytes = kept_embedding_.bytes() + kept_head_.bytes();
  for (const LayerActivations& kept : kept_) bytes += kept.bytes();
  return bytes;
}

int64_t Chunk::stash_bytes() const {
  int64_t bytes = head_stash_.bytes() + kept_embedding_.bytes();
  if (content_.embedding) bytes += static_cast<int64_t>(d_.nbytes());
  for (const WeightStash& stash : stash_) bytes += stash.bytes();
  return bytes;
}

std::vector<at::Tensor> Chunk::gradients() const {
  std::vector<at::Tensor> all;
  if (content_.embedding) all.push_back(embedding_gradient_);
  for (const LayerTensors& g : layer_gradients_) {
    all.insert(all.end(), {g.attention_norm, g.qkv, g.attention_out, g.ffn_norm, g.gate_up, g.down});
  }
  if (content_.head) all.insert(all.end(), {head_gradients_.norm, head_gradients_.output});
  return all;
}

std::vector<Case> chunk_layouts() {
  const std::vector<Case> layouts = {
      {.micro_batch = 2, .sequence = 10},
      {.micro_batch = 2, .sequence = 16, .documents = {{0, 3, 8}, {0}}},
      {.micro_batch = 1, .sequence = 16, .vocab = 251, .tp = 4},
      {.micro_batch = 1, .sequence = 16, .vocab = 5, .tp = 4, .sequence_parallel = true},
      {.micro_batch = 1, .sequence = 16, .tp = 2, .sequence_parallel = true, .keep_gathered = true},
      {.micro_batch = 2, .sequence = 16, .cp = 2},
      {.micro_batch = 1, .sequence = 32, .cp = 4, .documents = {{0, 5, 8, 9, 31}}},
      {.micro_batch = 2, .sequence = 16, .tp = 2, .cp = 2},
      {.micro_batch = 2, .sequence = 16, .tp = 2, .cp = 2, .sequence_parallel = true},
      {.micro_batch = 1,
       .sequence = 32,
       .kv_heads = 1,
       .tp = 2,
       .cp = 2,
       .sequence_parallel = true,
       .keep_gathered = true,
       .documents = {{0, 1, 16}}},
  };
  std::vector<Case> cases;
  for (Case c : layouts) {
    for (const auto dtype : {config::Dtype::fp64, config::Dtype::bf16}) {
      c.dtype = dtype;
      cases.push_back(c);
    }
  }
  return cases;
}

std::vector<model::Recompute> recompute_modes() {
  return {{.norm = true},
          {.activation = true},
          {.attention = true},
          {.norm = true, .activation = true, .attention = true},
          {.full = true},
          {.activation = true, .attention = true, .every = 2},
          {.full = true, .every = 2}};
}

}  // namespace lockstep::nn::test
