// A trace as a viewer shows it, read back from either format: processes, threads, slices and where arrows
// leave and arrive. The readers share nothing with the writers; both throw runtime_error for what a viewer
// would drop.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::testing {

struct ShownSlice {
  int pid = 0, tid = 0;
  int64_t start_ns = 0, end_ns = 0;
  std::string category, name;
  std::map<std::string, int64_t> arguments;
  std::optional<uint64_t> leaves, arrives;  // ids of arrows

  auto operator<=>(const ShownSlice&) const = default;
};

std::ostream& operator<<(std::ostream& out, const ShownSlice& slice);

struct ShownTrace {
  std::map<int, std::pair<std::string, int>> processes;                // by pid: name, place
  std::map<std::pair<int, int>, std::pair<std::string, int>> threads;  // by pid and tid: name, place
  std::vector<ShownSlice> slices;                                      // ascending

  bool operator==(const ShownTrace&) const = default;
};

ShownTrace read_chrome(const std::string& json);
ShownTrace read_perfetto(std::string_view bytes);
size_t perfetto_packets(std::string_view bytes);

}  // namespace lockstep::testing
