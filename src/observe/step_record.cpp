#include "observe/step_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/units.hpp"

namespace lockstep::observe {

namespace {

void add(ExposedSeconds& sum, const ExposedSeconds& more, double factor) {
  sum.tp += more.tp * factor;
  sum.cp += more.cp * factor;
  sum.pp += more.pp * factor;
  sum.dp += more.dp * factor;
}

std::string percent(double share) { return fmt::format("{:.0f}", share * 100); }

}  // namespace

ExposedSeconds& ExposedSeconds::operator+=(const ExposedSeconds& more) {
  add(*this, more, 1);
  return *this;
}

ExposedSeconds hidden_seconds(const StepWaits& rank) {
  ExposedSeconds hidden;
  for (double ExposedSeconds::*axis :
       {&ExposedSeconds::tp, &ExposedSeconds::cp, &ExposedSeconds::pp, &ExposedSeconds::dp}) {
    hidden.*axis = std::max(0.0, rank.under_way.*axis - rank.exposed.*axis);
  }
  return hidden;
}

std::optional<StepWaits> mean_waits(const std::vector<StepWaits>& ranks) {
  if (ranks.empty()) return std::nullopt;
  StepWaits mean;
  for (const StepWaits& waits : ranks) {
    add(mean.exposed, waits.exposed, 1.0 / static_cast<double>(ranks.size()));
    add(mean.under_way, waits.under_way, 1.0 / static_cast<double>(ranks.size()));
  }
  return mean;
}

std::string exposed_text(const ExposedSeconds& e, double seconds) {
  if (!(e.total() > 0) || !(seconds > 0)) return "";
  std::string axes;
  for (const auto& [name, value] : std::array<std::pair<const char*, double>, 4>{
           {{"tp", e.tp}, {"cp", e.cp}, {"pp", e.pp}, {"dp", e.dp}}}) {
    const std::string share = percent(value / seconds);
    if (share != "0") axes += fmt::format("{}{} {}", axes.empty() ? "" : " ", name, share);
  }
  return fmt::format("exposed {}%", percent(e.total() / seconds)) + (axes.empty() ? "" : " (" + axes + ")");
}

std::string step_line(const StepRecord& r) {
  const std::string tps =
      std::isfinite(r.tokens_per_second) ? format_thousands(std::llround(r.tokens_per_second)) : "?";
  const std::string mfu = std::isfinite(r.mfu) ? fmt::format("{:.1f}%", r.mfu * 100) : "?";
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  grad_norm {:.2f}  lr {:.1e}  mem {}  tps {}  tflops {:.2f}  mfu {}  eta {}",
      r.step, r.steps, r.loss, r.grad_norm, r.lr, format_binary_bytes(static_cast<double>(r.memory_bytes)),
      tps, r.tflops, mfu, format_duration(r.eta_seconds));
  if (r.waits) {
    const std::string exposed = exposed_text(r.waits->exposed, r.seconds);
    if (!exposed.empty()) line += "  " + exposed;
  }
  if (r.skipped) line += r.trouble.empty() ? "  skipped" : "  skipped: " + r.trouble;
  return line;
}

}  // namespace lockstep::observe
