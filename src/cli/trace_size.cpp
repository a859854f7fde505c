#include "cli/trace_size.hpp"

#include <fmt/format.h>

#include <system_error>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/machine.hpp"
#include "observe/span.hpp"
#include "observe/trace_writer.hpp"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

// Bytes of a span in files, from traces of the 405B model.
constexpr double chrome_bytes = 165, perfetto_bytes = 65;

double ops_of(const parallel::Layout& layout, const parallel::Program& program) {
  double ops = 0;
  for (const parallel::Action& action : program.actions) {
    ops += static_cast<double>(parallel::action_ops(layout, program.stage, action).size());
  }
  return ops;
}

}  // namespace

// The sum of several steps has up to as much room again as it uses; and it is copied once.
double TraceSize::memory_bytes() const { return spans * (steps > 1 ? 3 : 2) * sizeof(observe::Span); }

double TraceSize::file_bytes(const fs::path& file) const {
  return spans * (observe::is_perfetto_name(file) ? perfetto_bytes : chrome_bytes);
}

TraceSize trace_size(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                     const std::vector<int>& ranks, int64_t steps) {
  std::vector<double> ops;
  for (const parallel::Program& program : programs) ops.push_back(ops_of(layout, program));
  TraceSize size{static_cast<int64_t>(ranks.size()), steps, 0};
  for (const int rank : ranks) {
    size.spans +=
        ops.at(static_cast<size_t>(layout.mesh().coordinates(rank).pp)) * static_cast<double>(steps);
  }
  return size;
}

void check_trace_size(const TraceSize& size, const fs::path& file) {
  const std::string what =
      fmt::format("--trace {}: {} rank{} x {} step{} are {} spans", file.string(),
                  format_thousands(size.ranks), size.ranks == 1 ? "" : "s", format_thousands(size.steps),
                  size.steps == 1 ? "" : "s", format_count(size.spans));
  const char* const advice = "name fewer ranks in --ranks, or fewer --steps";
  const auto available = static_cast<double>(available_memory());
  if (available >= 0 && size.memory_bytes() > available) {
    throw UsageError(fmt::format("{}, which take about {} of memory, and {} are free: {}", what,
                                 format_bytes(size.memory_bytes()), format_bytes(available), advice));
  }
  std::error_code error;
  if (fs::is_character_file(file, error)) return;
  const fs::space_info room = fs::space(fs::absolute(file).parent_path(), error);
  if (error || size.file_bytes(file) <= static_cast<double>(room.available)) return;
  throw UsageError(fmt::format("{}, a file of about {}, and {} are free there: {}", what,
                               format_bytes(size.file_bytes(file)),
                               format_bytes(static_cast<double>(room.available)), advice));
}

}  // namespace lockstep::cli
