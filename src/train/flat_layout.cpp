#include "train/flat_layout.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace lockstep::train {

namespace {

std::map<std::string, int64_t> model_offsets(const config::ModelConfig& model) {
  std::map<std::string, int64_t> offsets;
  int64_t next = 0;
  for (const model::Parameter& p : model::model_parameters(model)) {
    offsets[p.name] = next;
    next += p.count();
  }
  return offsets;
}

}  // namespace

FlatLayout::FlatLayout(const parallel::Layout& layout, int stage, int chunk, int tp_rank) {
  const config::ModelConfig& model = layout.run().model;
  const int64_t tp = layout.run().parallel.tp;
  const auto offsets = model_offsets(model);
  for (const parallel::Segment& sizes : layout.segments(stage, chunk)) {
    segments_.push_back({padded_, sizes});
    padded_ += sizes.padded();
  }
  const bool tied_apart = layout.has_tied_copy(stage, chunk);
  const auto is_apart = [&](const model::Parameter& p) {
    return tied_apart && p.family == model::Family::embedding;
  };
  auto parameters = model::chunk_parameters(model, layout.chunk(stage, chunk));
  std::stable_partition(parameters.begin(), parameters.end(),
                        [](const model::Parameter& p) { return p.cut == model::Cut::replicated; });
  std::stable_partition(parameters.begin(), parameters.end(),
                        [&](const model::Parameter& p) { return !is_apart(p); });
  int64_t next = 0;
  for (const model::Parameter& p : parameters) {
    if (is_apart(p)) next = segments_.back().offset;
    const int64_t cols = p.local_cols(tp);
    entries_.push_back({p, next, p.local_count(tp), p.valid_rows(tp, tp_rank) * cols, offsets.at(p.name),
                        p.local_rows(tp), cols, p.first_row(tp, tp_rank), p.first_col(tp, tp_rank),
                        p.counts_on(tp, tp_rank)});
    next += entries_.back().count;
    if (p.cut == model::Cut::replicated) replicated_ = next;
  }
}

const FlatEntry& FlatLayout::find(const std::string& name) const {
  for (const FlatEntry& entry : entries_) {
    if (entry.parameter.name == name) return entry;
  }
  throw std::logic_error("no parameter named " + name + " in this chunk");
}

}  // namespace lockstep::train
