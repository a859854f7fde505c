#include "config/rule_set.hpp"

#include <cstdlib>

#include "config/rules.hpp"
#include "config/schema.hpp"

namespace lockstep::config {

Range range_of(const std::string& key) {
  const Rule& rule = find_key(key)->rule;
  return {static_cast<int64_t>(rule.low), static_cast<int64_t>(rule.high)};
}

std::optional<int64_t> nearest_multiple(int64_t value, int64_t unit, Range range) {
  const int64_t first = (std::max<int64_t>(range.low, 1) + unit - 1) / unit;
  const int64_t last = range.high / unit;
  if (first > last) return std::nullopt;
  return std::clamp((value + unit / 2) / unit, first, last) * unit;
}

std::optional<int64_t> nearest_divisor(int64_t value, int64_t unit, int64_t whole) {
  std::optional<int64_t> nearest;
  const auto distance = [&](int64_t other) { return std::abs(other - value); };
  const auto consider = [&](int64_t divisor) {
    if (divisor % unit != 0) return;
    if (!nearest || distance(divisor) < distance(*nearest) ||
        (distance(divisor) == distance(*nearest) && divisor > *nearest)) {
      nearest = divisor;
    }
  };
  for (int64_t small = 1; small * small <= whole; ++small) {
    if (whole % small != 0) continue;
    consider(small);
    consider(whole / small);
  }
  return nearest;
}

bool RuleSet::good(std::initializer_list<const char*> keys) const {
  return std::none_of(keys.begin(), keys.end(), [&](const char* key) { return bad_.count(key) > 0; });
}

void RuleSet::report(const std::string& key, const std::string& rule, std::optional<int64_t> fix) {
  Problem problem = problem_of(run_, key, rule);
  if (fix.has_value()) problem.fix = to_literal(*fix);
  problems_.push_back(problem);
}

void RuleSet::report_word(const std::string& key, const std::string& rule, const std::string& fix) {
  report(key, rule);
  problems_.back().fix = to_literal(fix);
}

void RuleSet::report_boolean(const std::string& key, const std::string& rule, bool fix) {
  report(key, rule);
  problems_.back().fix = to_literal(fix);
}

void RuleSet::report_other(const std::string& key, const std::string& rule, const std::string& fix_key,
                           int64_t fix) {
  report(key, rule, fix);
  problems_.back().fix_key = fix_key;
}

}  // namespace lockstep::config
