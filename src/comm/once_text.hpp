// Writing and reading the once-written texts of shared memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "comm/shared_layout.hpp"

namespace lockstep::comm {

// False if someone else has begun to write already. A text that is too long ends in "...".
inline bool write_once(OnceText& slot, std::string_view text) {
  uint32_t empty = 0;
  if (!slot.state.compare_exchange_strong(empty, 1)) return false;
  const size_t room = slot.text.size() - 1;
  const size_t n = std::min(text.size(), room);
  std::memcpy(slot.text.data(), text.data(), n);
  if (n < text.size()) std::memcpy(slot.text.data() + room - 3, "...", 3);
  slot.text[n] = '\0';
  slot.state.store(2, std::memory_order_release);
  return true;
}

inline bool is_whole(const OnceText& slot) { return slot.state.load(std::memory_order_acquire) == 2; }

// Empty unless whole.
inline std::string read_once(const OnceText& slot) {
  return is_whole(slot) ? slot.text.data() : std::string();
}

}  // namespace lockstep::comm
