// Text files compiled into the program (see cmake/embed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

struct EmbeddedFile {
  std::string_view name;     // file name without folder and ending
  std::string_view content;  // the whole file
};

}  // namespace lockstep
