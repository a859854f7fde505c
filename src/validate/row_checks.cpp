#include "validate/row_checks.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/units.hpp"
#include "cluster/hardware.hpp"
#include "model/parameters.hpp"

namespace lockstep::validate {

namespace {

constexpr double rounding = 0.03;      // sources round parameters
constexpr double another_model = 0.1;  // no rounding
constexpr double slowest = 1e-4;       // of the peak: no training is

double parameters(const config::RunFile& run) {
  return static_cast<double>(model::parameter_count(run.model));
}
// 0 where the row gives none.
double parameters_off(const Measurement& row, const config::RunFile& run) {
  if (!row.billion_parameters) return 0;
  return std::abs(*row.billion_parameters * 1e9 / parameters(run) - 1);
}

// The cell that the time comes from.
std::string time_cell(const Measurement& row) {
  if (row.step_seconds) return fmt::format("step_time_s = {:g}", *row.step_seconds);
  if (row.tflops_per_gpu) return fmt::format("tflops_per_gpu = {:g}", *row.tflops_per_gpu);
  return fmt::format("mfu_pct = {:g}", *row.mfu_percent);
}

// FLOP/s of one GPU: of the arithmetic that nobody can leave out, attention causal and nothing twice; where
// the row gives a rate of hardware FLOPs, that one.
double rate_of(const Measurement& row, const config::RunFile& run, const MeasuredTime& measured) {
  if (!row.step_seconds && row.tflops_per_gpu && row.tflops_kind.starts_with("hardware")) {
    return *row.tflops_per_gpu * 1e12;
  }
  const double tokens = static_cast<double>(run.train.global_batch) * static_cast<double>(run.train.sequence);
  return model::flops_per_token(run.model, run.train.sequence, true) * tokens /
         (static_cast<double>(run.parallel.world_size()) * measured.seconds);
}

}  // namespace

std::string impossible(const Measurement& row, const config::RunFile& run, const MeasuredTime& measured) {
  if (parameters_off(row, run) > another_model) {
    return fmt::format(
        "params_b = {:g}, but layers, hidden, heads, ffn and vocab make a model of {} parameters: correct "
        "one "
        "of them",
        *row.billion_parameters, format_count(parameters(run)));
  }
  const double rate = rate_of(row, run, measured);
  const double peak = cluster::Hardware(run.cluster, run.train.dtype).peak_flops();
  if (rate < slowest * peak) {
    return fmt::format("{} would be {} a GPU, less than a ten-thousandth of its peak of {}: correct the cell",
                       time_cell(row), format_quantity(rate, "FLOP/s"), format_quantity(peak, "FLOP/s"));
  }
  if (rate > peak) {
    return fmt::format("{} would be {} a GPU, whose peak is {}: correct the cell, the batch or the model",
                       time_cell(row), format_quantity(rate, "FLOP/s"), format_quantity(peak, "FLOP/s"));
  }
  // The GB of a device's name are GiB, of which presets count less.
  const double most = run.cluster.memory_bytes / 1e9;
  if (row.memory_gib && *row.memory_gib > most) {
    return fmt::format("memory_gib = {:g} is more than the GPU's {:g}: correct the cell or the GPU",
                       *row.memory_gib, most);
  }
  return "";
}

std::string parameters_differ(const Measurement& row, const config::RunFile& run) {
  const double off = parameters_off(row, run);
  if (off <= rounding || off > another_model) return "";
  return fmt::format("params_b = {:g} is read past: the shapes make a model of {} parameters",
                     *row.billion_parameters, format_count(parameters(run)));
}

}  // namespace lockstep::validate
