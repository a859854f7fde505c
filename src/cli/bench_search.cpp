// lockstep bench search
#include <fmt/format.h>

#include <chrono>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/terminal_text.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "config/load.hpp"
#include "cost/step_figures.hpp"
#include "plan/search.hpp"

namespace lockstep::cli {

namespace {

using lockstep::plan::Evaluation;
using lockstep::plan::LayoutSearch;
using lockstep::plan::SearchLayout;

constexpr std::string_view run_text = R"(
name = "bench-search"
[model]
preset = "llama3-70b"
[cluster]
preset = "h100-24k"
gpus = 8
[parallel]
tp = 8
[train]
sequence = 8192
global_batch = 8
)";
constexpr std::array<int64_t, 7> cluster_sizes = {64, 128, 256, 512, 768, 1024, 1536};

// 4 to 7 times each power of two from 16 to 1,024: 64 to 7,168 sequences.
std::vector<int64_t> batch_sizes() {
  std::vector<int64_t> out;
  for (int64_t power = 16; power <= 1024; power *= 2) {
    for (const int64_t times : {4, 5, 6, 7}) out.push_back(times * power);
  }
  return out;
}

struct Best {
  SearchLayout layout;
  Evaluation evaluation;
  bool any = false;
};

// The fastest layout that fits, of each batch.
class BestOfBatches : public LayoutSearch::Visitor {
 public:
  BestOfBatches(double capacity, size_t batches) : capacity_(capacity), best_(batches) {}
  void take(const SearchLayout& layout, const Evaluation& evaluation) override {
    ++evaluated_;
    if (evaluation.bytes > capacity_) return;
    ++valid_;
    Best& best = best_[layout.batch];
    if (!best.any || evaluation.seconds < best.evaluation.seconds) best = {layout, evaluation, true};
  }
  const std::vector<Best>& best() const { return best_; }
  int64_t evaluated() const { return evaluated_; }
  int64_t valid() const { return valid_; }

 private:
  double capacity_;
  std::vector<Best> best_;
  int64_t evaluated_ = 0, valid_ = 0;
};

struct Case {
  int64_t gpus = 0, evaluated = 0, valid = 0;
  double seconds = 0;
  std::vector<Best> best;
};

Json case_json(const Case& c, const LayoutSearch& search, const std::vector<int64_t>& batches) {
  Json json;
  json["gpus"] = c.gpus;
  json["evaluated"] = c.evaluated;
  json["valid"] = c.valid;
  json["wall_seconds"] = c.seconds;
  json["best"] = Json::array();
  for (size_t b = 0; b < batches.size(); ++b) {
    if (!c.best[b].any) continue;
    Json best;
    best["global_batch"] = batches[b];
    best["seconds"] = c.best[b].evaluation.seconds;
    best["total_bytes"] = c.best[b].evaluation.bytes;
    best["layout"] = cost::layout_json(search.run_of(c.best[b].layout));
    json["best"].push_back(best);
  }
  return json;
}

std::string cases_text(const std::vector<Case>& cases, const std::vector<int64_t>& batches) {
  cost::TextTable table(text_style());
  table.header({"GPUs", "layouts", "fit", "a second", "best step", "batch", "tp", "cp", "pp", "dp", "V"});
  for (const Case& c : cases) {
    const Best& best = c.best.back();
    std::vector<std::string> row = {format_thousands(c.gpus), format_thousands(c.evaluated),
                                    format_thousands(c.valid),
                                    format_count(static_cast<double>(c.evaluated) / c.seconds)};
    const SearchLayout& l = best.layout;
    row.push_back(best.any ? format_seconds(best.evaluation.seconds) : "none fits");
    row.push_back(format_thousands(batches.back()));
    for (const int64_t n : {l.tp, l.cp, l.pp, l.dp, l.virtual_stages}) {
      row.push_back(best.any ? std::to_string(n) : "-");
    }
    table.row(row);
  }
  return table.text();
}

}  // namespace

int bench_search(const Arguments& arguments) {
  int64_t seconds = 5;
  bool json = false;
  Flags flags("bench search", "lockstep bench search --seconds 5");
  flags.number(seconds, "--seconds", "N", "how long to search, to the end of a cluster size", {1, 3600})
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;
  const config::Examined base = config::examine_run_text(std::string(run_text), "bench-search.toml", {});
  if (!base.problems.empty()) throw std::logic_error("the run of bench search is broken");

  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const std::vector<int64_t> batches = batch_sizes();
  const Clock::time_point start = Clock::now();
  int64_t evaluated = 0, valid = 0, sweeps = 0;
  std::vector<Case> cases;  // each cluster size as it was searched last
  std::unique_ptr<LayoutSearch> search;
  for (size_t i = 0; since(start) < static_cast<double>(seconds); i = (i + 1) % cluster_sizes.size()) {
    if (i == 0) {  // from nothing: building the tables counts
      search = std::make_unique<LayoutSearch>(base.run, batches);
      ++sweeps;
    }
    const Clock::time_point case_start = Clock::now();
    BestOfBatches best(base.run.cluster.memory_bytes, batches.size());
    search->run_over(cluster_sizes[i], best);
    if (cases.size() <= i) cases.emplace_back();
    cases[i] = {cluster_sizes[i], best.evaluated(), best.valid(), since(case_start), best.best()};
    evaluated += best.evaluated();
    valid += best.valid();
  }
  const double wall = since(start);
  const double rate = static_cast<double>(evaluated) / wall;
  if (json) {
    Json document;
    document["evaluated"] = evaluated;
    document["valid"] = valid;
    document["wall_seconds"] = wall;
    document["layouts_per_second"] = rate;
    document["sweeps"] = sweeps;
    document["cases"] = Json::array();
    for (const Case& c : cases) document["cases"].push_back(case_json(c, *search, batches));
    print_json(document);
    return exit_ok;
  }
  print(filled(
      fmt::format("{} layouts evaluated in memory and time in {} on one core: {} a second (measured). "
                  "Llama 3 70B, H100, sequences of {}; {} batch sizes of {} to {} sequences; tables built "
                  "anew each sweep.",
                  format_thousands(evaluated), format_seconds(wall), format_count(rate),
                  format_thousands(base.run.train.sequence), batches.size(), batches.front(),
                  format_thousands(batches.back()))));
  print("\n" + cases_text(cases, batches));
  return exit_ok;
}

}  // namespace lockstep::cli
