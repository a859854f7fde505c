#include "cli/long_work.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/units.hpp"

namespace lockstep::cli {

LongWork::LongWork(std::string title, std::FILE* out, observe::Terminal terminal, double between_lines)
    : title_(std::move(title)),
      out_(out),
      terminal_(terminal),
      between_lines_(between_lines),
      next_line_(between_lines) {}

double LongWork::passed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void LongWork::update(int64_t done, int64_t of) {
  const double seconds = passed();
  const double left = seconds / static_cast<double>(done) * static_cast<double>(of - done);
  if (terminal_.interactive) {
    if (seconds < 1) return;
    if (!bar_) bar_.emplace(out_, terminal_, title_, of);
    return bar_->update(done, left);
  }
  if (seconds < next_line_ || done == of) return;
  next_line_ = seconds + between_lines_;
  fmt::print(out_, "{}: {} %, {} of {}, about {} left\n", title_, 100 * done / of, format_thousands(done),
             format_thousands(of), format_duration(left));
  std::fflush(out_);
}

void LongWork::finish() {
  if (bar_) bar_->finish();
}

}  // namespace lockstep::cli
