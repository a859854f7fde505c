#include "validate/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "parallel/layout.hpp"
#include "parallel/program.hpp"
#include "plan/memory.hpp"
#include "plan/step_time.hpp"
#include "validate/measured_time.hpp"
#include "validate/row_checks.hpp"
#include "validate/row_run.hpp"
#include "validate/sources.hpp"

namespace lockstep::validate {

namespace {

struct Prediction {
  double seconds = 0;
  double total = 0, tensors = 0;  // bytes of the fullest GPU
  bool fits = false;
};

Prediction predict(const config::RunFile& run) {
  const parallel::Layout layout(run);
  const std::vector<parallel::Program> programs = parallel::build_step_programs(layout);
  const plan::MemoryReport memory = plan::memory_of(layout, programs);
  return {plan::step_time(layout, programs).seconds, static_cast<double>(memory.fullest().total()),
          static_cast<double>(memory.fullest().tensors()), memory.fits()};
}

// The fastest that fits; where none does, the fastest.
struct Choice {
  size_t index = 0;
  Prediction prediction;
  Choices among;
};

Choice choose(const std::vector<config::RunFile>& candidates) {
  Choice best;
  best.among.layouts = candidates.size();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Prediction prediction = predict(candidates[i]);
    const bool first_that_fits = prediction.fits && best.among.fitting == 0;
    if (prediction.fits) ++best.among.fitting;
    if (i == 0 || first_that_fits) {
      best.index = i, best.prediction = prediction, best.among.slowest = prediction.seconds;
    } else if (prediction.fits == best.prediction.fits) {
      if (prediction.seconds < best.prediction.seconds) best.index = i, best.prediction = prediction;
      best.among.slowest = std::max(best.among.slowest, prediction.seconds);
    }
  }
  return best;
}

std::string choice_words(const Choice& choice) {
  const Choices& among = choice.among;
  const double longer = 100 * (among.slowest / choice.prediction.seconds - 1);
  if (among.layouts == 1) return "no other divides the layers and the batch";
  const std::string of = fmt::format("of {} choices the ", among.layouts);
  if (among.fitting == 0) {
    return of +
           fmt::format("one predicted fastest; none fits, and the slowest takes {:.1f} % longer", longer);
  }
  if (among.fitting == 1) return of + "only one that fits";
  return of +
         fmt::format("one predicted fastest that fits; the slowest that fits takes {:.1f} % longer", longer);
}

std::string choice_text(const config::RunFile& run, const Choice& choice) {
  return fmt::format("parallel.micro_batch = {}, parallel.virtual_stages = {} ({})", run.parallel.micro_batch,
                     run.parallel.virtual_stages, choice_words(choice));
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

Errors errors_of(const Validation& v, const std::function<bool(const Measurement&)>& counts) {
  Errors out;
  std::vector<double> all, signs, held, fitted, memory;
  for (const Skipped& one : v.skipped) {
    if (counts(one.row)) ++out.skipped;
  }
  for (const Case& one : v.cases) {
    if (!counts(one.row)) continue;
    const double size = std::abs(one.error());
    signs.push_back(one.error());
    all.push_back(size);
    if (one.held_out) held.push_back(size);
    if (one.fitted) fitted.push_back(size);
    if (const auto error = one.memory_error()) memory.push_back(std::abs(*error));
  }
  out.rows = out.skipped + static_cast<int64_t>(all.size());
  out.mean = mean(all);
  out.most = all.empty() ? out.mean : *std::max_element(all.begin(), all.end());
  out.bias = mean(signs);
  out.memory_mean = mean(memory);
  out.memory_rows = static_cast<int64_t>(memory.size());
  out.held_out_rows = static_cast<int64_t>(held.size());
  out.held_out_mean = mean(held);
  out.fitted_mean = mean(fitted);
  return out;
}

void take(const Measurement& row, Validation& out, std::string& refused_settings) {
  const SourceRule& rule = rule_of(row.source);
  RowRuns runs = runs_of(row, rule, out.settings);
  if (!runs.reason.empty()) {
    if (refused_settings.empty()) refused_settings = runs.refused_settings;
    out.skipped.push_back({row, runs.reason});
    return;
  }
  const Choice choice = choose(runs.candidates);
  const config::RunFile& run = runs.candidates[choice.index];
  const MeasuredTime measured = measured_time(row, runs.as_published, rule.model_flops);
  const std::string reason =
      measured.reason.empty() ? impossible(row, runs.as_published, measured) : measured.reason;
  if (!reason.empty()) {
    out.skipped.push_back({row, reason});
    return;
  }
  if (const std::string differ = parameters_differ(row, runs.as_published); !differ.empty()) {
    runs.assumed.push_back(differ);
  }
  if (runs.chosen) runs.assumed.push_back(choice_text(run, choice));
  Case one;
  one.row = row;
  one.run = run;
  one.measured = measured.seconds;
  one.measured_by = measured.how;
  one.predicted = choice.prediction.seconds;
  one.total_memory = choice.prediction.total;
  one.fits = choice.prediction.fits;
  one.choices = choice.among;
  one.assumed = std::move(runs.assumed);
  if (row.memory_gib) {
    one.measured_memory = *row.memory_gib * 1073741824.0;
    one.predicted_memory = rule.memory_allocated ? choice.prediction.tensors : choice.prediction.total;
    one.assumed.emplace_back(rule.memory_allocated
                                 ? "memory_gib is what tensors were allocated: plan's margin is left out"
                                 : "memory_gib is what the allocator reserved: plan's margin counts");
  }
  out.cases.push_back(std::move(one));
}

}  // namespace

std::vector<std::string> Validation::sources() const {
  std::vector<std::pair<int, std::string>> by_row;
  for (const Case& one : cases) by_row.emplace_back(one.row.row, one.row.source);
  for (const Skipped& one : skipped) by_row.emplace_back(one.row.row, one.row.source);
  std::sort(by_row.begin(), by_row.end());
  std::vector<std::string> out;
  for (const auto& [row, source] : by_row) {
    if (std::find(out.begin(), out.end(), source) == out.end()) out.push_back(source);
  }
  return out;
}

Errors Validation::errors() const {
  return errors_of(*this, [](const Measurement&) { return true; });
}
Errors Validation::errors(const std::string& source) const {
  return errors_of(*this, [&](const Measurement& row) { return row.source == source; });
}

Validation validate(const Measurements& measurements, const std::vector<std::string>& settings) {
  Validation out;
  out.settings = settings;
  out.file = measurements.name;
  out.unknown_columns = measurements.unknown_columns;
  std::string refused_settings;
  for (const Measurement& row : measurements.rows) take(row, out, refused_settings);
  if (out.cases.empty() && !refused_settings.empty()) throw UsageError(refused_settings);
  std::vector<const Measurement*> known;
  for (const Case& one : out.cases) {
    if (is_known(one.row.source)) known.push_back(&one.row);
  }
  const std::vector<int> kept_out = held_out(known);
  for (Case& one : out.cases) {
    one.held_out = std::binary_search(kept_out.begin(), kept_out.end(), one.row.row);
    one.fitted = is_known(one.row.source) && !one.held_out;
  }
  return out;
}

}  // namespace lockstep::validate
