#include "cli/run_means.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace lockstep::cli {

namespace {

constexpr int64_t first_steady_step = 4;

void add_share(std::string& text, const char* axis, double hidden, double under_way) {
  if (under_way > 0) text += fmt::format(" {} {:.0f}%", axis, 100 * hidden / under_way);
}

}  // namespace

void RunMeans::add(const AssembledStep& step) {
  const observe::StepRecord& record = step.record;
  if (record.step < first_steady_step) return;
  if (record.skipped) {
    ++skipped_;
    return;
  }
  rates_.push_back(record.tokens_per_second);
  seconds_ += record.seconds;
  mfu_ += record.mfu * record.seconds;
  mfu_causal_ += record.mfu_causal * record.seconds;
  if (!record.waits) return;
  waited_seconds_ += record.seconds;
  exposed_ += record.waits->exposed;
  for (const observe::WaitMessage& rank : step.ranks) {
    hidden_ += observe::hidden_seconds(rank.waits);
    under_way_ += rank.waits.under_way;
  }
}

double RunMeans::tokens_per_second() const {
  if (rates_.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> rates = rates_;
  std::sort(rates.begin(), rates.end());
  const size_t middle = rates.size() / 2;
  return rates.size() % 2 == 1 ? rates[middle] : (rates[middle - 1] + rates[middle]) / 2;
}

std::string RunMeans::over() const {
  std::string text = fmt::format("after step {}", first_steady_step - 1);
  if (skipped_ > 0) text += fmt::format(", {} skipped step{} left out", skipped_, skipped_ == 1 ? "" : "s");
  return text;
}

std::string RunMeans::text(const std::string& peak) const {
  if (rates_.empty()) return "";
  return fmt::format("mfu {:.1f}% with attention counted as full, {:.1f}% as causal, of {}; {}\n",
                     100 * mfu_ / seconds_, 100 * mfu_causal_ / seconds_, peak, over()) +
         exposed_line();
}

std::string RunMeans::exposed_line() const {
  const std::string exposed = observe::exposed_text(exposed_, waited_seconds_);
  if (exposed.empty()) return "";
  std::string hidden;
  add_share(hidden, "pp", hidden_.pp, under_way_.pp);
  add_share(hidden, "dp", hidden_.dp, under_way_.dp);
  if (!hidden.empty()) hidden = "; hidden beside compute:" + hidden + " of the time under way";
  return exposed + " of a step, mean over ranks, " + over() + hidden + "\n";
}

}  // namespace lockstep::cli
