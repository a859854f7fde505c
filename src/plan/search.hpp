// A search over layouts: every one that the run file's model, GPUs and batch allow is evaluated in memory and
// time, in closed form, from tables that many layouts share (plan/search_tables). The closed form of time is
// that of single plans; memory is the walk of single plans, done once for each shape of pipeline
// (plan/search_shapes).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::plan {

// One layout; what it does not name is the run file's.
struct SearchLayout {
  int64_t tp = 1, cp = 1, pp = 1, dp = 1;
  int64_t virtual_stages = 1;
  int64_t first_less = 0, last_less = 0;  // layers
  int64_t micro_batch = 1, micro_batches = 1;
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int64_t zero = 1;
  bool sequence_parallel = true;
  size_t recompute = 0;  // of LayoutSearch::recompute_choices()
  size_t batch = 0;      // of the search's batches

  bool operator==(const SearchLayout&) const = default;
};

struct Evaluation {
  double seconds = 0;  // a step, the wait for its batch included
  double bytes = 0;    // of the fullest GPU
};

class LayoutSearch {
 public:
  // Takes each layout with its evaluation.
  class Visitor {
   public:
    virtual ~Visitor() = default;
    virtual void take(const SearchLayout& layout, const Evaluation& evaluation) = 0;
  };

  // `run` has passed config's rules: its model, cluster and data. `batches`: sequences a step. Tables that do
  // not depend on the number of GPUs stay between calls of `run_over`.
  LayoutSearch(const config::RunFile& run, std::vector<int64_t> batches);
  ~LayoutSearch();
  LayoutSearch(const LayoutSearch&) = delete;
  LayoutSearch& operator=(const LayoutSearch&) = delete;

  // Every layout of `gpus` GPUs: tp up to a node (powers of two), cp (powers of two up to 16), pp (whatever
  // divides), dp the rest; chunks that get equally many layers but for up to two less at the ends;
  // micro-batches of 1, 2, 4 or 8 sequences; 1F1B, GPipe, zero-bubble H1, interleaved (several chunks); zero
  // 0 to 3; recompute none, attention, full and what the run file has; sequence parallel on and off. Where
  // two settings are the same step only one is tried.
  void run_over(int64_t gpus, Visitor& visitor);

  const std::vector<std::vector<std::string>>& recompute_choices() const;
  // The run file of a layout; passes config's rules for layouts of run_over.
  config::RunFile run_of(const SearchLayout& layout) const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace lockstep::plan
