#include "plan/memory.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/json.hpp"
#include "config/optimizer_state.hpp"
#include "parallel/live_bytes.hpp"
#include "parallel/step_ops.hpp"
#include "plan/pass_memory.hpp"

namespace lockstep::plan {

namespace {

using Kind = parallel::ActionKind;
using model::Axis;
using parallel::Action;

// What a micro-batch keeps of the head between its forward and its backward; 0 for a stage without it. What
// the first half of a backward leaves of it counts as activations.
int64_t head_bytes(const parallel::Layout& layout, int stage) {
  model::ChunkContent content = layout.chunk(stage, layout.virtual_stages() - 1);
  if (!content.head) return 0;
  const model::LayerProgram& layers = layout.layers();
  const int64_t with = model::chunk_activation_bytes(layers.shape, layers.recompute, content);
  content.head = false;
  return with - model::chunk_activation_bytes(layers.shape, layers.recompute, content);
}

// Follows what a stage holds from action to action, and keeps the fullest moment.
class Walk {
 public:
  Walk(const parallel::Layout& layout, int stage)
      : layout_(layout),
        stage_(stage),
        sharded_(layout.mesh().size(Axis::dp_cp) > 1),
        boundary_(model::boundary_bytes(layout.shape())),
        live_(layout, stage),
        head_bytes_(head_bytes(layout, stage)) {
    now_.stage = stage;
    const int64_t gradient = layout.shape().gradient_bytes;
    for (int c = 0; c < layout.virtual_stages(); ++c) {
      const int64_t state = layout.state_elements(stage, c);
      const bool shards_weights = layout.zero() == 3 && sharded_;
      now_.weights += (shards_weights ? state : layout.padded_chunk_elements(stage, c)) * element_bytes();
      now_.optimizer +=
          state * (1 + config::optimizer_moments(layout.run().train)) * layout.shape().state_bytes;
      if (!reduces_in_place()) now_.reduced += state * gradient;
      if (layout.gradients_persist()) allocate_gradients(c);
    }
    now_.tables = table_bytes(layout.run(), layout.shape(), layout.micro_batches());
    now_.stand_ins = stand_in_bytes(layout.run(), layout.shape());
    note();
  }

  void take(const Action& a) {
    switch (a.kind) {
      case Kind::unshard:
      case Kind::reshard:
        if (layout_.zero() == 3 && sharded_) {
          const int64_t bytes = layout_.padded_chunk_elements(stage_, a.chunk) * element_bytes();
          now_.gathered += a.kind == Kind::unshard ? bytes : -bytes;
        }
        break;
      case Kind::receive_forward:
      case Kind::receive_backward:
        now_.messages += boundary_;
        break;
      case Kind::send_forward:
      case Kind::send_backward:
        send();
        break;
      case Kind::forward:
      case Kind::backward:
      case Kind::backward_input:
      case Kind::backward_weight:
        pass(a);
        break;
      case Kind::reduce_gradients:
        reduce(a.chunk);
        break;
      case Kind::gather_gradients:
        end_reduction(a.chunk);
        break;
      case Kind::sum_tied_gradients:
        end_reductions();
        break;
      case Kind::gradient_norm:
        end_reductions();
        note(parallel::norm_numbers(layout_, stage_) * 8);
        break;
      default:
        break;
    }
    note();
  }

  StageMemory fullest() const { return fullest_; }
  int64_t activations() const { return live_.bytes(); }
  int64_t tensors() const { return now_.tensors() + live_.bytes(); }

 private:
  int64_t element_bytes() const { return layout_.shape().element_bytes; }
  int64_t gradient_buffer(int chunk) const {
    return layout_.padded_chunk_elements(stage_, chunk) * layout_.shape().gradient_bytes;
  }

  bool reduces_in_place() const {
    const bool into_gradients = layout_.run().software.reduce_in_place && layout_.gradients_persist();
    return layout_.reduces_in_place() || (into_gradients && !layout_.accumulates_reductions());
  }

  // `workspace`: bytes of this moment alone.
  void note(int64_t workspace = 0) {
    StageMemory moment = now_;
    moment.workspace += workspace;
    moment.logits = head_live_ * head_bytes_;
    moment.activations = live_.bytes() - moment.logits;
    if (moment.total() > fullest_.total()) fullest_ = moment;
  }

  void send() {
    // The tensor is kept until the next one is sent.
    if (sent_) now_.messages -= boundary_;
    sent_ = true;
  }

  const PassMemory& memory_of_pass(const Action& a) {
    const auto [found, is_new] = passes_.try_emplace({a.kind, a.chunk});
    if (is_new) found->second = pass_memory(layout_, stage_, a.kind, a.chunk);
    return found->second;
  }

  void pass(const Action& a) {
    const PassMemory& memory = memory_of_pass(a);
    const model::ChunkContent& content = layout_.chunk(stage_, a.chunk);
    const bool forward = a.kind == Kind::forward;
    // A hidden state comes from the chunk before, its gradient from the chunk after, by message or by hand.
    const bool takes = forward ? !content.embedding : parallel::goes_back(a.kind) && !content.head;
    const bool gives = forward ? !content.head : parallel::goes_back(a.kind) && !content.embedding;
    const int64_t norms = waiting_norm_bytes(layout_, stage_, a.chunk);
    if (parallel::ends_backward(a.kind)) allocate_gradients(a.chunk);
    if (a.kind == Kind::backward_input) now_.workspace += norms;
    if (forward) {
      const int64_t before = live_.bytes();
      live_.take(a);
      if (content.head) ++head_live_;
      if (takes) now_.messages -= boundary_;  // it is an activation now
      note(memory.peak - (live_.bytes() - before) + (takes ? boundary_ : 0));
    } else {
      note(memory.peak);
      live_.take(a);
      if (content.head && parallel::goes_back(a.kind)) --head_live_;
      if (takes) now_.messages -= boundary_;
    }
    if (gives) now_.messages += boundary_;
    if (a.kind == Kind::backward_weight) now_.workspace -= norms;
  }

  void allocate_gradients(int chunk) {
    if (allocated_.insert(chunk).second) now_.gradients += gradient_buffer(chunk);
  }
  void reduce(int chunk) {
    allocate_gradients(chunk);
    if (!layout_.gradients_persist()) end_reductions();
    const model::ShardShape& s = layout_.shape();
    if (s.kv_copies > 1) {  // packed into one message
      note(model::kv_parameter_count(layout_.run().model, layout_.chunk(stage_, chunk), s.tp) *
           s.gradient_bytes);
    }
    if (layout_.gradients_persist() || layout_.reduces_in_place()) return;
    note();
    allocated_.erase(chunk);
    under_way_.insert(chunk);
    if (!sharded_) end_reduction(chunk);
  }
  // Frees the buffer of a reduction under way.
  void end_reduction(int chunk) {
    if (under_way_.erase(chunk) > 0) now_.gradients -= gradient_buffer(chunk);
  }
  void end_reductions() {
    for (const int chunk : std::set<int>(under_way_)) end_reduction(chunk);
  }

  const parallel::Layout& layout_;
  int stage_;
  bool sharded_;
  int64_t boundary_;
  parallel::LiveActivations live_;
  StageMemory now_, fullest_;  // activations and logits of `now_` stay 0: live_ has them
  int64_t head_bytes_;
  int head_live_ = 0;  // micro-batches that hold them
  bool sent_ = false;
  std::set<int> allocated_;  // chunks with a buffer of unreduced gradients
  std::set<int> under_way_;  // chunks whose former buffer is being reduced
  std::map<std::pair<Kind, int>, PassMemory> passes_;
};

StageMemory stage_memory(const parallel::Layout& layout, const parallel::Program& program) {
  Walk walk(layout, program.stage);
  for (const Action& action : program.actions) walk.take(action);
  StageMemory memory = walk.fullest();
  memory.margin =
      static_cast<int64_t>(layout.run().software.memory_margin * static_cast<double>(memory.total()));
  return memory;
}

void add_parts(Json& json, const StageMemory& m) {
  json["weights_bytes"] = m.weights + m.gathered;
  json["gradients_bytes"] = m.gradients;
  json["optimizer_bytes"] = m.optimizer;
  json["activations_bytes"] = m.activations + m.logits;
  json["other_bytes"] = m.other();
  json["total_bytes"] = m.total();
  json["tensors_bytes"] = m.tensors();
  Json parts;
  parts["weights"] = m.weights;
  parts["gathered_parameters"] = m.gathered;
  parts["gradients"] = m.gradients;
  parts["optimizer"] = m.optimizer;
  parts["activations"] = m.activations;
  parts["logits_and_loss"] = m.logits;
  parts["messages"] = m.messages;
  parts["reduced_gradients"] = m.reduced;
  parts["workspace"] = m.workspace;
  parts["tables"] = m.tables;
  parts["stand_ins"] = m.stand_ins;
  parts["margin"] = m.margin;
  json["parts_bytes"] = parts;
}

}  // namespace

int64_t table_bytes(const config::RunFile& run, const model::ShardShape& s, int64_t micro_batches) {
  const int64_t places = 2 + (run.data.document_mask ? micro_batches : 0);
  const int64_t angles = s.gpt ? 0 : s.sequence * s.head_dim * s.statistic_bytes;
  return angles + places * s.tokens * 8;
}

int64_t stand_in_bytes(const config::RunFile& run, const model::ShardShape& s) {
  if (!run.software.fused_weight_gradients) return 0;
  const int64_t rows = s.qkv_width() + s.heads * s.head_dim + s.activation_width() + s.ffn;
  return rows * s.hidden * s.element_bytes;
}

const StageMemory& MemoryReport::fullest() const {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const auto& a, const auto& b) { return a.total() < b.total(); });
}

MemoryReport memory_of(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  MemoryReport report;
  report.capacity = static_cast<int64_t>(layout.run().cluster.memory_bytes);
  report.moments = config::optimizer_moments(layout.run().train);
  report.whole_gradients =
      layout.zero() >= 2 && layout.micro_batches() > 1 && !layout.scatters_every_micro_batch();
  for (const parallel::Program& program : programs) report.stages.push_back(stage_memory(layout, program));
  return report;
}

std::vector<MemoryMoment> memory_curve(const parallel::Layout& layout, const parallel::Program& program) {
  Walk walk(layout, program.stage);
  std::vector<MemoryMoment> curve;
  for (const Action& action : program.actions) {
    walk.take(action);
    if (parallel::is_pass(action.kind)) curve.push_back({action, walk.activations(), walk.tensors()});
  }
  return curve;
}

TrainingState training_state(double parameters, const config::TrainConfig& train) {
  const double weights = static_cast<double>(model::element_bytes(train.dtype));
  const double gradients = static_cast<double>(model::gradient_bytes(train.dtype));
  const double state = static_cast<double>(1 + config::optimizer_moments(train)) * gradients;
  return {(2 + 2 + 12) * parameters, (weights + gradients + state) * parameters};
}

Json curve_json(const std::vector<MemoryMoment>& curve) {
  Json json = Json::array();
  for (const MemoryMoment& moment : curve) {
    Json point;
    point["pass"] = to_string(moment.pass.kind);
    point["chunk"] = moment.pass.chunk;
    point["micro_batch"] = moment.pass.micro_batch;
    point["activations_bytes"] = moment.activations;
    point["tensors_bytes"] = moment.tensors;
    json.push_back(point);
  }
  return json;
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
