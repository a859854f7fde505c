#include "plan/memory.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/json.hpp"
#include "model/layer_program.hpp"

namespace lockstep::plan {

namespace {

using Kind = parallel::ActionKind;

// Follows what a stage holds from action to action.
class Walk {
 public:
  Walk(const parallel::Layout& layout, int stage)
      : layout_(layout), stage_(stage), boundary_(model::boundary_bytes(layout.shape())) {}

  void take(const parallel::Action& a) {
    switch (a.kind) {
      case Kind::receive_forward:
      case Kind::receive_backward:
        messages_ += boundary_;
        received_.insert({a.kind, a.chunk, a.micro_batch});
        break;
      case Kind::forward:
        // The input becomes an activation; the output waits to be sent.
        activations_ += chunk_bytes(a.chunk);
        consume(Kind::receive_forward, a);
        break;
      case Kind::backward:
        peak();  // the incoming gradient is there until the pass ends
        activations_ -= chunk_bytes(a.chunk);
        consume(Kind::receive_backward, a);
        break;
      case Kind::send_forward:
      case Kind::send_backward:
        messages_ += boundary_;
        peak();
        messages_ -= boundary_;
        break;
      default:
        break;
    }
    peak();
  }

  int64_t peak_activations() const { return peak_activations_; }
  int64_t peak_messages() const { return peak_total_ - peak_activations_; }

 private:
  int64_t chunk_bytes(int chunk) const {
    return model::chunk_activation_bytes(layout_.shape(), layout_.layers().recompute,
                                         layout_.chunk(stage_, chunk));
  }
  void consume(Kind receive, const parallel::Action& a) {
    if (received_.erase({receive, a.chunk, a.micro_batch}) > 0) messages_ -= boundary_;
  }
  void peak() {
    if (activations_ + messages_ <= peak_total_) return;
    peak_total_ = activations_ + messages_;
    peak_activations_ = activations_;
  }

  const parallel::Layout& layout_;
  int stage_;
  int64_t boundary_;
  int64_t activations_ = 0, messages_ = 0;
  int64_t peak_total_ = 0, peak_activations_ = 0;
  std::set<std::tuple<Kind, int, int>> received_;
};

StageMemory stage_memory(const parallel::Layout& layout, const parallel::Program& program) {
  const model::ShardShape& s = layout.shape();
  StageMemory m;
  m.stage = program.stage;
  for (int c = 0; c < layout.virtual_stages(); ++c) {
    const int64_t elements = layout.padded_chunk_elements(program.stage, c);
    const int64_t shard = layout.shard_elements(program.stage, c);
    m.weights += elements * s.element_bytes;
    m.gradients += elements * s.gradient_bytes;
    m.optimizer += shard * 3 * s.gradient_bytes;
    m.shard += shard * s.gradient_bytes;
  }
  Walk walk(layout, program.stage);
  for (const parallel::Action& action : program.actions) walk.take(action);
  m.activations = walk.peak_activations();
  m.messages = walk.peak_messages();
  m.workspace = workspace_bytes(layout, program.stage);
  m.margin = static_cast<int64_t>(margin_share * static_cast<double>(m.total()));
  return m;
}

void add_parts(Json& json, const StageMemory& m) {
  json["weights_bytes"] = m.weights;
  json["gradients_bytes"] = m.gradients;
  json["optimizer_bytes"] = m.optimizer;
  json["activations_bytes"] = m.activations;
  json["other_bytes"] = m.other();
  json["total_bytes"] = m.total();
}

}  // namespace

const StageMemory& MemoryReport::fullest() const {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const auto& a, const auto& b) { return a.total() < b.total(); });
}

int64_t workspace_bytes(const parallel::Layout& layout, int stage) {
  const model::ShardShape& s = layout.shape();
  const int64_t hidden_states = 2 * s.tokens * s.hidden;
  int64_t elements = 0;
  int64_t recomputed = 0;
  for (int c = 0; c < layout.virtual_stages(); ++c) {
    const model::ChunkContent& content = layout.chunk(stage, c);
    if (content.layers > 0) {
      elements = std::max(elements, hidden_states + 4 * s.tokens * s.ffn);
      if (layout.layers().recompute.full) recomputed = model::layer_activation_bytes(s, {});
    }
    if (content.head) elements = std::max(elements, hidden_states + s.tokens * s.vocab);
  }
  return elements * s.element_bytes + recomputed;
}

MemoryReport memory_of(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  MemoryReport report;
  report.capacity = static_cast<int64_t>(layout.run().cluster.memory_bytes);
  for (const parallel::Program& program : programs) report.stages.push_back(stage_memory(layout, program));
  return report;
}

TrainingState training_state(double parameters, config::Dtype dtype) {
  const double weights = static_cast<double>(model::element_bytes(dtype));
  const double gradients = static_cast<double>(model::gradient_bytes(dtype));
  return {(2 + 2 + 12) * parameters, (weights + gradients + 3 * gradients) * parameters};
}

Json memory_json(const MemoryReport& report) {
  Json json;
  add_parts(json, report.fullest());
  json["capacity_bytes"] = report.capacity;
  json["fits"] = report.fits();
  json["stages"] = Json::array();
  for (const StageMemory& m : report.stages) {
    Json stage;
    stage["stage"] = m.stage;
    add_parts(stage, m);
    json["stages"].push_back(stage);
  }
  return json;
}

}  // namespace lockstep::plan
