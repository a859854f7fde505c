// What this machine has, as the commands need to know it.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::cli {

int usable_cores();                              // that this process may run on
int64_t available_memory();                      // bytes that can be had without swapping; -1: not known
std::string processor_name();                    // empty: not known
bool processor_has(const std::string& feature);  // a flag of /proc/cpuinfo ("avx2")

}  // namespace lockstep::cli
