// A search over layouts: every one that the run file's model, GPUs and batch allow is evaluated in memory and
// time, in closed form, from tables that many layouts share (plan/search_tables). The closed form of time is
// that of single plans; memory is the walk of single plans, done once for each shape of pipeline
// (plan/search_shapes).
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "config/problem.hpp"
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

// Passes of a step, micro-batches through all chunks, that a search goes up to: plans of more take minutes.
inline constexpr int64_t most_searched_passes = 1 << 17;

struct Evaluation {
  double seconds = 0;  // a step, the wait for its batch included
  double bytes = 0;    // of the fullest GPU
};

// The keys that a layout of a search has its own values for, "parallel.tp" and so on, in the order of
// reports.
const std::vector<std::string>& searched_keys();
// Of those the ones that a --set flag gave: a search keeps to them.
std::set<std::string> keys_held_by_flags(const config::RunFile& run);
// Keys between which and others a run that is only searched need not pass config's rules.
std::set<std::string> unchosen_keys();

class LayoutSearch {
 public:
  // Takes each layout with its evaluation.
  class Visitor {
   public:
    virtual ~Visitor() = default;
    virtual void take(const SearchLayout& layout, const Evaluation& evaluation) = 0;
    // So many layouts have more passes a step than a search evaluates.
    virtual void left_out(int64_t /*layouts*/) {}
    // So many of all the ways to cut the GPUs have been gone through.
    virtual void went_through(size_t /*cuts*/, size_t /*of*/) {}
  };

  // `run` has passed config's rules but for those of unchosen_keys(). `batches`: sequences a step. `held`:
  // searched keys whose value is the run's in every layout. UsageError that names all keys of `run` that the
  // search does not count. Tables that do not depend on the number of GPUs stay between calls of `run_over`.
  LayoutSearch(const config::RunFile& run, std::vector<int64_t> batches, std::set<std::string> held = {});
  ~LayoutSearch();
  LayoutSearch(const LayoutSearch&) = delete;
  LayoutSearch& operator=(const LayoutSearch&) = delete;

  // Every layout of `gpus` GPUs that config's rules allow: tp, pp and dp whatever divides, cp up to 16;
  // chunks that get equally many layers but for up to two less at the ends, up to 16 a stage, on one stage
  // whatever divides; micro-batches of up to 16 sequences; 1F1B, GPipe, zero-bubble H1, interleaved (several
  // chunks); zero 0 to 3; recompute none, attention, norm and activation, full and what the run file has;
  // sequence parallel on and off. Where two settings are the same step only one is tried. Values that are
  // held go beyond these limits. Left out: layouts of more than most_searched_passes.
  void run_over(int64_t gpus, Visitor& visitor);

  // Why no layout with this tp, cp and pp on so many GPUs is valid, whatever else it has; with `zero` at that
  // value. Empty when there is one, as far as config's rules go.
  std::string why_none(int64_t gpus, int64_t tp, int64_t cp, int64_t pp, int64_t zero) const;
  // The same of all ways to cut the GPUs, a line each, at most `lines`.
  std::string why_none(int64_t gpus, size_t lines) const;

  const std::vector<std::vector<std::string>>& recompute_choices() const;
  // The run file of a layout; passes config's rules for layouts of run_over.
  config::RunFile run_of(const SearchLayout& layout) const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace lockstep::plan
