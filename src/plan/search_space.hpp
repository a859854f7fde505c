// Which layouts a search tries: the values of each axis, and which of them go together.
#pragma once

#include <array>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "plan/search.hpp"

namespace lockstep::plan {

class SearchSpace {
 public:
  // As LayoutSearch's constructor.
  SearchSpace(const config::RunFile& run, std::vector<int64_t> batches, std::set<std::string> held);

  // What all layouts share; of the searched keys the values that are held.
  const config::RunFile& base() const { return base_; }
  const std::vector<int64_t>& batches() const { return batches_; }
  const std::vector<std::vector<std::string>>& recompute_choices() const { return recompute_; }
  config::RunFile run_of(const SearchLayout& layout) const;

  // A way to cut the GPUs, and the first rule that every layout with it breaks; empty: none.
  struct Mesh {
    SearchLayout layout;  // tp, cp, pp, dp
    std::string problem;
  };
  std::vector<Mesh> meshes(int64_t gpus) const;
  Mesh mesh(int64_t gpus, int64_t tp, int64_t cp, int64_t pp, int64_t zero) const;

  // Values of the further axes, for a layout whose earlier ones are chosen.
  std::vector<int64_t> virtual_stages(const SearchLayout& layout) const;
  // Deals layers to chunks: as many to each, but for a few at the ends. False when that cannot be.
  bool deal_layers(SearchLayout& layout) const;
  std::vector<int64_t> micro_batches(const SearchLayout& layout) const;
  bool divides(const SearchLayout& layout, size_t batch) const;
  // Whether a step has few enough passes, micro-batches through all chunks.
  bool small_enough(const SearchLayout& layout) const;
  std::span<const bool> sequence_parallel(const SearchLayout& layout) const;
  std::vector<size_t> recompute() const;
  std::span<const config::ScheduleKind> schedules(const SearchLayout& layout) const;
  std::span<const int64_t> zeros(const SearchLayout& layout) const;

 private:
  bool is_held(const char* key) const { return held_.count(std::string("parallel.") + key) > 0; }
  void choose_lists();
  // UsageError, with the rule, when none is left.
  void only_zeros_from(int64_t least, const char* rule);
  std::string problem_of(SearchLayout mesh) const;

  config::RunFile base_;
  std::vector<int64_t> batches_;
  std::set<std::string> held_;
  config::ParallelConfig own_;  // as the run file has it
  std::vector<std::vector<std::string>> recompute_;
  std::vector<config::ScheduleKind> one_chunk_, several_chunks_;
  std::vector<int64_t> zeros_;
};

}  // namespace lockstep::plan
