// What the tables of keys are written with.
#pragma once

#include <vector>

#include "config/schema.hpp"

namespace lockstep::config {

// A key is named once: it is the field of the same name in the table's structure.
#define LOCKSTEP_KEY(TABLE, NAME) #TABLE, #NAME
#define LOCKSTEP_FIELD(PATH) [](RunFile& run) -> Field { return &run.PATH; }
#define KEY(TABLE, NAME, SENTENCE, ...) \
  Key { LOCKSTEP_KEY(TABLE, NAME), SENTENCE, LOCKSTEP_FIELD(TABLE.NAME), __VA_ARGS__ }
#define KEY_NOT_BUILT(TABLE, NAME, SENTENCE)                                                \
  Key {                                                                                     \
    LOCKSTEP_KEY(TABLE, NAME), SENTENCE, [](RunFile&) -> Field { return std::monostate{}; } \
  }

inline constexpr Need optional = Need::optional;
inline constexpr Need required = Need::required;
inline constexpr Need or_preset = Need::required_or_preset;

// Upper limits are far beyond any use; they keep products of a few keys inside 64 bits.
inline const Rule dimension = {.low = 1, .high = 1 << 24};
inline const Rule count = {.low = 1, .high = 1 << 16};
inline const Rule mesh = {.low = 1, .high = 1 << 12};
inline const Rule gpu_count = {.low = 1, .high = 1 << 28};
inline const Rule positive = {.low = 0, .high = 1e30, .above_low = true};
inline const Rule epsilon = {.low = 1e-30, .high = 1e30};  // smaller ones are zero in fp32, and then divide
inline const Rule not_negative = {.low = 0, .high = 1e30};
// Per second, or bytes: below one, times and counts made from it leave what a number holds.
inline const Rule rate = {.low = 1, .high = 1e30};
inline const Rule capacity = {.low = 1, .high = 1e18};    // memory is counted in 64-bit integers
inline const Rule uplinks = {.low = 0, .high = 1 << 12};  // of one switch: real ones have some hundred ports
inline const Rule seconds = {.low = 0, .high = 1e6};
inline const Rule watts = {.low = 0, .high = 1e6};
inline const Rule share = {.low = 1e-6, .high = 1};
inline const Rule below_one = {.low = 0, .high = 0.999999};
inline const Rule seed = {.low = 0, .high = 9007199254740992.0};
inline const Rule steps = {.low = 0, .high = 1e12};

inline Rule by_size(const char* size) {
  return {.fields = {{.name = size, .above_low = true, .names_record = true},
                     {.name = "efficiency", .low = 1e-6, .high = 1}}};
}
inline const RecordField timed_bytes = {.name = "bytes", .above_low = true, .names_record = true};
inline const RecordField timed_seconds = {.name = "seconds", .high = 1e6, .above_low = true};
inline const Rule timed_messages = {.fields = {timed_bytes, timed_seconds}};
inline const Rule timed_collectives = {
    .fields = {{.name = "ranks", .low = 2, .high = 1 << 20, .whole = true, .names_record = true},
               timed_bytes,
               timed_seconds}};
inline const Rule slow_ranks = {
    .fields = {{.name = "rank", .high = 1 << 28, .whole = true, .names_record = true},
               {.name = "factor", .high = 1e6, .above_low = true}}};

std::vector<Key> cluster_keys();
std::vector<Key> software_keys();

}  // namespace lockstep::config
