#include "sim/run_stages.hpp"

#include "base/error.hpp"

namespace lockstep::sim {

void run_to_end(std::vector<StageRun>& stages) {
  for (bool moved = true; moved;) {
    moved = false;
    for (StageRun& stage : stages) moved = stage.advance() || moved;
  }
  for (StageRun& stage : stages) {
    if (!stage.done()) throw RunError(stage.where() + ": waits for something that never comes");
    stage.finish();
  }
}

}  // namespace lockstep::sim
