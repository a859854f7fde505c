// Figures as people read them: three significant figures, the unit after a space.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// A figure with an SI prefix on its unit, from pico to exa: (17.1e6, "W") is "17.1 MW", (0, "B") is "0 B".
// Rounding carries into the prefix: (999.7e6, "B") is "1.00 GB". Beyond the prefixes: "3.79e25 FLOP".
std::string format_quantity(double value, const std::string& unit);

std::string format_bytes(double bytes);         // "65.1 GB", decimal; below 1,000 exactly: "512 B"
std::string format_binary_bytes(double bytes);  // "1.2GiB", "512MiB", as in step lines
std::string format_seconds(double seconds);     // "6.20 s", "12.3 ms", "450 µs"; from 1,000 s: "5,410 s"
std::string format_count(double count);  // "16.8M", "405B", "15.6T"; whole numbers below 1,000 as they are
std::string format_duration(double seconds);  // "0:03:12", rounded to seconds; "-:--:--" when not finite
std::string format_thousands(int64_t value);  // "5,410"

}  // namespace lockstep
