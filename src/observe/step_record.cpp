#include "observe/step_record.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/units.hpp"

namespace lockstep::observe {

std::string step_line(const StepRecord& r) {
  const std::string tps =
      std::isfinite(r.tokens_per_second) ? format_thousands(std::llround(r.tokens_per_second)) : "?";
  const std::string mfu = std::isfinite(r.mfu) ? fmt::format("{:.1f}%", r.mfu * 100) : "?";
  return fmt::format(
      "step {}/{}  loss {:.4f}  grad_norm {:.2f}  lr {:.1e}  mem {}  tps {}  tflops {:.2f}  mfu {}  eta {}",
      r.step, r.steps, r.loss, r.grad_norm, r.lr, format_binary_bytes(static_cast<double>(r.memory_bytes)),
      tps, r.tflops, mfu, format_duration(r.eta_seconds));
}

}  // namespace lockstep::observe
