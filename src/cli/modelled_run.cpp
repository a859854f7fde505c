#include "cli/modelled_run.hpp"

#include <unistd.h>

#include "observe/progress.hpp"
#include "parallel/program_check.hpp"

namespace lockstep::cli {

std::vector<parallel::Program> checked_programs(const parallel::Layout& layout) {
  std::vector<parallel::Program> programs = parallel::build_step_programs(layout);
  parallel::check_step_programs(layout, programs);
  return programs;
}

cost::Style text_style() { return {observe::detect_terminal(STDOUT_FILENO).colour}; }

}  // namespace lockstep::cli
