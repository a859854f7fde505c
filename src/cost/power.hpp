// Power and energy of a step at the site's meter, from where its seconds go: plan and simulate say the same.
//
// A GPU draws cluster.gpu_compute_watts while kernels run (compute, optimizer), gpu_communication_watts while
// it waits for transfers that nothing hides (tp, cp, pp, dp), gpu_idle_watts while it waits for others
// (bubble, data, barrier). A node's host and the network draw the same all the time; nodes count whole. PUE
// multiplies all of it. Transfers beside kernels and what a host draws under load are part of the figures.
#pragma once

#include <optional>
#include <string>

#include "base/json_fwd.hpp"
#include "cost/step_figures.hpp"
#include "cost/text.hpp"

namespace lockstep::cost {

struct Power {  // watts of the whole run, means over the step
  double gpus = 0;
  double hosts = 0;
  double network = 0;
  double overhead = 0;  // cooling and losses: what PUE adds
  double peak = 0;      // at the meter, when all GPUs draw their most at once
  double one_gpu = 0;   // mean over GPUs

  double average() const { return gpus + hosts + network + overhead; }  // at the meter
};

// `split`: seconds of the step, which sum to it. Nothing where the cluster's power is not known
// (gpu_compute_watts = 0) or the step takes no time.
std::optional<Power> power_of(const config::RunFile& run, const StepSplit& split);

double megawatt_hours(double watts, double days);

// JSON block `power` of `plan` and `simulate`; null where it is not known.
Json power_json(const std::optional<Power>& power, const StepFigures& step);
// A sentence and a table.
std::string power_text(const config::RunFile& run, const std::optional<Power>& power, const StepFigures& step,
                       const Style& style);

}  // namespace lockstep::cost
