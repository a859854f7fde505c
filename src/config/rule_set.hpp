// What the rules between keys share: which keys can be trusted, how a broken rule is reported, and the search
// for the nearest value that works.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/problem.hpp"
#include "config/run_file.hpp"

namespace lockstep::config {

struct Range {
  int64_t low, high;
};

// Of an integer key's own rule.
Range range_of(const std::string& key);

// The integer of the range nearest to `value` for which `works`; the larger of two equally near.
template <class Works>
std::optional<int64_t> nearest_that(int64_t value, Range range, Works works) {
  const int64_t farthest = std::max(value - range.low, range.high - value);
  for (int64_t distance = 0; distance <= farthest; ++distance) {
    if (value + distance <= range.high && works(value + distance)) return value + distance;
    if (value - distance >= range.low && works(value - distance)) return value - distance;
  }
  return std::nullopt;
}

// The positive multiple of `unit` nearest to `value`, the larger of two equally near, inside the range.
std::optional<int64_t> nearest_multiple(int64_t value, int64_t unit, Range range);

// The divisor of `whole` that is a multiple of `unit` and nearest to `value`, the larger of two equally near.
std::optional<int64_t> nearest_divisor(int64_t value, int64_t unit, int64_t whole);

class RuleSet {
 public:
  // Keys in `bad` are already reported, or missing; what is broken is appended to `problems`.
  RuleSet(const RunFile& run, const std::set<std::string>& bad, std::vector<Problem>& problems)
      : run_(run), bad_(bad), problems_(problems) {}

 protected:
  // Whether a rule over these keys can be checked.
  bool good(std::initializer_list<const char*> keys) const;

  void report(const std::string& key, const std::string& rule, std::optional<int64_t> fix = std::nullopt);
  void report_word(const std::string& key, const std::string& rule, const std::string& fix);
  void report_boolean(const std::string& key, const std::string& rule, bool fix);
  // Where another key than the broken one is to be changed.
  void report_other(const std::string& key, const std::string& rule, const std::string& fix_key, int64_t fix);

  // Sequences of a step are dealt to logical replicas in whole micro-batches.
  int64_t batch_unit() const { return run_.parallel.logical_replicas() * run_.parallel.micro_batch; }

  // A sequence is cut into 2 cp chunks and each between the tp ranks; by sequence parallel into tp parts.
  int64_t sequence_unit() const {
    const ParallelConfig& p = run_.parallel;
    return p.cp > 1 ? 2 * p.cp * p.tp : p.tp;
  }

  const RunFile& run_;

 private:
  const std::set<std::string>& bad_;
  std::vector<Problem>& problems_;
};

// Of the mesh, the pipeline and what memory holds; the others stand in rules.cpp.
void check_parallel_rules(const RunFile& run, const std::set<std::string>& bad,
                          std::vector<Problem>& problems);

}  // namespace lockstep::config
