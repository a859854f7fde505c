#include "sim/run_stages.hpp"

#include <string>

#include "base/error.hpp"

namespace lockstep::sim {

void run_to_end(std::vector<StageRun>& stages, const Exchange& exchange) {
  for (bool moved = true; moved;) {
    moved = false;
    for (StageRun& stage : stages) moved = stage.advance() || moved;
  }
  std::string stuck;
  for (const StageRun& stage : stages) {
    if (!stage.done()) stuck += (stuck.empty() ? "" : "; ") + stage.where();
  }
  if (!stuck.empty()) throw RunError("the programs wait for what never comes: " + stuck);
  for (StageRun& stage : stages) stage.finish();
  exchange.check_empty();
}

}  // namespace lockstep::sim
