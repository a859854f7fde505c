// Why a step takes as long as it does: its critical path, what it would take if something were free, what
// slows it down, and which ranks the others wait for.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.hpp"
#include "cost/text.hpp"
#include "sim/causes.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::sim {

struct Why {
  double seconds = 0;  // of the step
  int ranks = 0;
  CriticalPath path;
  struct IfFree {
    PathKind kind = PathKind::gemm;
    double seconds = 0;  // of the step if nothing of the kind took any time: simulated again
  };
  std::vector<IfFree> if_free;    // of the kinds on the path
  double without_contention = 0;  // if nothing slowed down what goes on at the same time
  struct Caused {
    Cause cause;
    double without = 0;  // seconds of the step without it, on all ranks that have it: simulated again
  };
  std::vector<Caused> causes;
  double without_causes = 0;  // without any of them
  struct Slow {
    int rank = 0;
    double kernel_seconds = 0, pause_seconds = 0;
    double behind_seconds = 0;  // see StepResult
    std::string reasons;        // in words
  };
  std::vector<Slow> slowest;   // those furthest behind; empty: nobody is
  double without_slowest = 0;  // if these ranks were as fast as their stages' median ranks: simulated again
};

// Simulates the step several times more: for the path, for each kind on it, without contention, without each
// cause and without the slowest ranks. `result`: of the step with the same options.
Why explain(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
            const StepOptions& options, const StepResult& result);

std::string why_text(const parallel::Mesh& mesh, const Why& why, const cost::Style& style);
Json why_json(const Why& why);

}  // namespace lockstep::sim
