#include "cli/machine.hpp"

#include <sched.h>

#include <fstream>
#include <sstream>

namespace lockstep::cli {

namespace {

// The text after "KEY...:" of a line of a /proc file; empty when there is no such line.
std::string proc_line(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int64_t available_memory() {
  std::istringstream in(proc_line("/proc/meminfo", "MemAvailable"));
  int64_t kibibytes = -1;
  return in >> kibibytes ? kibibytes * 1024 : -1;
}

std::string processor_name() { return proc_line("/proc/cpuinfo", "model name"); }

bool processor_has(const std::string& feature) {
  std::istringstream in(proc_line("/proc/cpuinfo", "flags"));
  for (std::string word; in >> word;) {
    if (word == feature) return true;
  }
  return false;
}

}  // namespace lockstep::cli
