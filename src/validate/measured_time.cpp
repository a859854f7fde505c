#include "validate/measured_time.hpp"

#include <fmt/format.h>

#include "cluster/hardware.hpp"
#include "model/parameters.hpp"

namespace lockstep::validate {

namespace {

double step_tokens(const config::RunFile& run) {
  return static_cast<double>(run.train.global_batch) * static_cast<double>(run.train.sequence);
}

double gpus_of(const config::RunFile& run) { return static_cast<double>(run.parallel.world_size()); }

MeasuredTime from_rate(const Measurement& row, const config::RunFile& run, ModelFlops convention) {
  const double rate = *row.tflops_per_gpu * 1e12 * gpus_of(run);
  const std::string given = fmt::format("{:g} TFLOP/s", *row.tflops_per_gpu);
  if (row.tflops_kind.starts_with("hardware")) {
    if (run.parallel.recompute != std::vector<std::string>{"full"}) {
      return {0, "", "tflops_kind hardware is understood with full recomputation alone"};
    }
    return {hardware_flops(run) / rate, given + " of 96 B S L H^2 (1 + S / 6H + V / 16LH)", ""};
  }
  if (!row.tflops_kind.starts_with("model")) {
    return {
        0, "",
        fmt::format("tflops_kind = \"{}\" is not known: it begins with model or hardware", row.tflops_kind)};
  }
  const bool palm = convention == ModelFlops::palm;
  return {model_flops(run, convention) / rate,
          given + (palm ? " of 6 x multiplying parameters + 12 layers hidden sequence"
                        : " of 6 x all parameters + 6 layers hidden sequence (causal; inferred, for the "
                          "source prints no formula)"),
          ""};
}

}  // namespace

double model_flops(const config::RunFile& run, ModelFlops convention) {
  if (convention == ModelFlops::palm) {
    return model::flops_per_token(run.model, run.train.sequence, false) * step_tokens(run);
  }
  const config::ModelConfig& m = run.model;
  const double attention = 6.0 * static_cast<double>(m.layers) * static_cast<double>(m.hidden) *
                           static_cast<double>(run.train.sequence);
  return (6.0 * static_cast<double>(model::parameter_count(m)) + attention) * step_tokens(run);
}

double hardware_flops(const config::RunFile& run) {
  const double l = static_cast<double>(run.model.layers), h = static_cast<double>(run.model.hidden);
  const double s = static_cast<double>(run.train.sequence), v = static_cast<double>(run.model.vocab);
  return 96 * step_tokens(run) * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
}

MeasuredTime measured_time(const Measurement& row, const config::RunFile& run, ModelFlops convention) {
  if (row.step_seconds) return {*row.step_seconds, "step time as given", ""};
  if (row.tflops_per_gpu) return from_rate(row, run, convention);
  if (!row.mfu_percent) return {0, "", "step_time_s, tflops_per_gpu and mfu_pct are all empty"};
  const double peak = cluster::Hardware(run.cluster, run.train.dtype).peak_flops();
  const double rate = *row.mfu_percent / 100 * peak * gpus_of(run);
  return {
      model_flops(run, ModelFlops::palm) / rate,
      fmt::format("MFU {:g} % of 6 x multiplying parameters + 12 layers hidden sequence, peak {:g} TFLOP/s",
                  *row.mfu_percent, peak / 1e12),
      ""};
}

}  // namespace lockstep::validate
