// What a row says, against its own model and machine: figures that cannot be.
#pragma once

#include <string>

#include "config/run_file.hpp"
#include "validate/measured_time.hpp"
#include "validate/measurement.hpp"

namespace lockstep::validate {

// Why the row cannot be: a step that would take more arithmetic than the GPUs' peak, more memory than a GPU
// has, parameters that are more than a tenth off what the model's shapes have. Names the cell and what to
// change; empty: nothing is wrong.
std::string impossible(const Measurement& row, const config::RunFile& run, const MeasuredTime& measured);

// Where the row's parameters are read past: they are off by 3 % to a tenth. Else empty.
std::string parameters_differ(const Measurement& row, const config::RunFile& run);

}  // namespace lockstep::validate
