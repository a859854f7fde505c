# lockstep_embed(ROOM SYMBOL FILES...): compiles text files into a room as a table of name and content.
# The files stay the one source; the program needs none of them beside it at run time.
function(lockstep_embed ROOM SYMBOL)
  set(OUT ${CMAKE_BINARY_DIR}/embedded/${SYMBOL}.cpp)
  set(BODY "")
  foreach(FILE ${ARGN})
    file(READ ${FILE} TEXT)
    cmake_path(GET FILE STEM NAME)
    string(APPEND BODY "    {\"${NAME}\", R\"~~~~(${TEXT})~~~~\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FILE})
  endforeach()
  file(CONFIGURE OUTPUT ${OUT} CONTENT
"#include \"base/embedded.hpp\"
namespace lockstep {
std::span<const EmbeddedFile> ${SYMBOL}() {
  static constexpr EmbeddedFile files[] = {
@BODY@  };
  return files;
}
}  // namespace lockstep
" @ONLY)
  target_sources(lockstep_${ROOM} PRIVATE ${OUT})
endfunction()
