// The power of all GPUs through a simulated step.
//
// Built from the spans of a few ranks of every pipeline stage: each stands for an equal part of its stage's
// GPUs. A GPU draws cluster.gpu_compute_watts while a kernel runs, gpu_communication_watts while no kernel
// runs but a collective or a message does, gpu_idle_watts otherwise. Hosts, network and cooling do not follow
// within milliseconds and are left out, as are a device's capacitors and its own limits on change.
#pragma once

#include <vector>

#include "config/run_file.hpp"
#include "observe/span.hpp"

namespace lockstep::facts {

struct PowerWaveform {
  double bin_seconds = 0;
  std::vector<double> watts;  // of all GPUs, mean over each bin; the last bin may be shorter

  double peak() const;
  double valley() const;
  double swing() const { return peak() - valley(); }
  // The largest difference between two moments that are at most so far apart.
  double largest_change(double within_seconds) const;
  double mean(double step_seconds) const;
};

// `traces`: simulated spans of ranks, as many of each stage, of one step of `seconds`; `gpus`: that they all
// stand for. Throws invalid_argument without traces or seconds.
PowerWaveform power_waveform(const config::ClusterConfig& cluster,
                             const std::vector<observe::SpanFile>& traces, double gpus, double seconds,
                             double bin_seconds);

}  // namespace lockstep::facts
