# Warnings are errors; ccache is used where present; position-independent code is not needed.
add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overflows in std::string's own code that are not there (GCC bugs 105329, 105651).
  add_compile_options(-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
# Exact IEEE results matter here (bitwise runs), so no -ffast-math; these two only drop errno and traps.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno> $<$<COMPILE_LANGUAGE:CXX>:-fno-trapping-math> -ffp-contract=off)
if(LOCKSTEP_MARCH AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  add_compile_options(-march=${LOCKSTEP_MARCH})
endif()
if(LOCKSTEP_SANITIZE)
  # GCC warns of uninitialised values in the standard library's own code once it is instrumented.
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                      -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
find_program(CCACHE ccache)
if(CCACHE)
  # Precompiled headers and ccache agree only with these settings.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()
