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
  auto parameters = model::chunk_parameters(model, layout.chunk(stage, chunk));
  std::stable_partition(parameters.begin(), parameters.end(),
                        [](const model::Parameter& p) { return p.cut == model::Cut::replicated; });
  for (const model::Parameter& p : parameters) {
    FlatEntry entry{p, elements_, p.local_count(tp), offsets.at(p.name), p.local_rows(tp), p.local_cols(tp),
                    0, 0};
    if (p.cut == model::Cut::rows) entry.first_row = tp_rank * entry.local_rows;
    if (p.cut == model::Cut::columns) entry.first_col = tp_rank * entry.local_cols;
    elements_ += entry.count;
    if (p.cut == model::Cut::replicated) replicated_ = elements_;
    entries_.push_back(std::move(entry));
  }
  padded_ = layout.padded_chunk_elements(stage, chunk);
  shard_ = layout.shard_elements(stage, chunk);
}

const FlatEntry& FlatLayout::find(const std::string& name) const {
  for (const FlatEntry& entry : entries_) {
    if (entry.parameter.name == name) return entry;
  }
  throw std::logic_error("no parameter named " + name + " in this chunk");
}

}  // namespace lockstep::train
