// What a row measured, as seconds of a step.
#pragma once

#include <string>

#include "config/run_file.hpp"
#include "validate/measurement.hpp"

namespace lockstep::validate {

// What a source's "model" FLOPs count.
enum class ModelFlops {
  // 6 x multiplying parameters + 12 layers hidden sequence a token, attention as if full, recompute never:
  // PaLM, arXiv:2204.02311, appendix B, and Megatron-LM's printed figures.
  palm,
  // 6 x all parameters + 6 layers hidden sequence a token: causal attention counted as it is computed. An
  // inference, for arXiv:2407.21783 prints no formula: of the usual conventions the only one under which the
  // three rows of its Table 4 agree with one model of the machine (docs/accuracy.md).
  all_parameters_causal,
};

// FLOPs of one step, over all GPUs.
double model_flops(const config::RunFile& run, ModelFlops convention);
// With everything computed twice in forward: 96 B S L H^2 (1 + S / 6H + V / 16LH), Narayanan et al.,
// arXiv:2104.04473, equation 3 (B sequences, S tokens, L layers, H hidden, V vocabulary).
double hardware_flops(const config::RunFile& run);

struct MeasuredTime {
  double seconds = 0;
  std::string how;     // "step time as given", "138 TFLOP/s of hardware FLOPs ..."
  std::string reason;  // why there is no time; empty: there is
};

// From the row's step time; else its TFLOP/s of its kind, seconds = FLOPs / (GPUs x TFLOP/s); else its MFU,
// which is of PaLM's FLOPs and the compute dtype's dense peak.
MeasuredTime measured_time(const Measurement& row, const config::RunFile& run, ModelFlops convention);

}  // namespace lockstep::validate
