// lockstep: the command a person types. This unit is compiled for any x86-64 processor, so that it can say
// what is wrong where the rest would stop at an illegal instruction.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "cli/commands.hpp"

namespace {

#ifdef LOCKSTEP_NEEDS_X86_64_V3
bool processor_fits() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    return true;
  }
  std::fputs(
      "lockstep: this processor lacks AVX2, FMA or BMI2, which this build uses (x86-64-v3)\n"
      "  to build for it: cmake --preset release -DLOCKSTEP_MARCH=x86-64 && cmake --build --preset release\n",
      stderr);
  return false;
}
#else
bool processor_fits() { return true; }
#endif

// A closed standard stream would hand its number to the next file that is opened.
bool open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // Closed output is opened for reading, so that results which nobody gets are an error and not a success.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) != fd)
      return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (!processor_fits() || !open_standard_streams()) return 1;
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk
  return lockstep::cli::run({argv + 1, argv + argc});
}
