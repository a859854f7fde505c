#include "parallel/live_bytes.hpp"

#include <algorithm>

namespace lockstep::parallel {

void LiveActivations::take(const Action& action) {
  if (!is_pass(action.kind)) return;
  const model::ChunkContent& content = layout_.chunk(stage_, action.chunk);
  const model::LayerProgram& layers = layout_.layers();
  const auto kept = [&] { return model::chunk_activation_bytes(layers.shape, layers.recompute, content); };
  const auto stash = [&] { return model::chunk_stash_bytes(layers.shape, layers.recompute, content); };
  if (action.kind == ActionKind::forward) bytes_ += kept();
  if (goes_back(action.kind)) bytes_ -= kept();
  if (action.kind == ActionKind::backward_input) bytes_ += stash();
  if (action.kind == ActionKind::backward_weight) bytes_ -= stash();
  peak_ = std::max(peak_, bytes_);
}

int64_t peak_activation_bytes(const Layout& layout, const Program& program) {
  LiveActivations live(layout, program.stage);
  for (const Action& action : program.actions) live.take(action);
  return live.peak();
}

}  // namespace lockstep::parallel
