// Predicts every row of a file of published measurements with the functions of `lockstep plan`, and says how
// far off it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_file.hpp"
#include "validate/measurement.hpp"

namespace lockstep::validate {

// Where cells are empty: the layouts that a row may have had, of which the one predicted fastest that fits is
// taken.
struct Choices {
  size_t layouts = 1, fitting = 0;
  double slowest = 0;  // seconds of a step; of those that fit, of all where none does
};

struct Case {
  Measurement row;
  config::RunFile run;                                      // as it was predicted
  double measured = 0;                                      // seconds of a step
  std::string measured_by;                                  // how they come from the row
  double predicted = 0;                                     // seconds, plan::step_time
  double total_memory = 0;                                  // bytes of the fullest GPU, plan::memory_of
  bool fits = false;                                        // by it, in the GPU's memory
  std::optional<double> measured_memory, predicted_memory;  // bytes; predicted: as it was measured
  Choices choices;                                          //
  std::vector<std::string> assumed;                         // what the row does not say
  // Of a source that the presets were fitted on: whether the row took part, or was kept out. Both false for
  // any other.
  bool fitted = false, held_out = false;

  double error() const { return predicted / measured - 1; }
  std::optional<double> memory_error() const {
    if (!measured_memory) return std::nullopt;
    return *predicted_memory / *measured_memory - 1;
  }
};

struct Skipped {
  Measurement row;
  std::string reason;
};

// Of the rows of one source, or of all. Errors are relative; means are of their sizes, NaN without a row.
struct Errors {
  int64_t rows = 0;                     // skipped ones included
  int64_t skipped = 0;                  //
  double mean = 0, most = 0, bias = 0;  // of step times; bias: the mean with signs
  double memory_mean = 0;
  int64_t memory_rows = 0;
  int64_t held_out_rows = 0;
  double held_out_mean = 0, fitted_mean = 0;
};

struct Validation {
  std::string file;
  std::vector<std::string> settings;         // "table.key=value", which override every row's run file
  std::vector<Case> cases;                   // in the order of the rows
  std::vector<Skipped> skipped;              //
  std::vector<std::string> unknown_columns;  // not read

  std::vector<std::string> sources() const;  // in the order of the rows
  Errors errors() const;
  Errors errors(const std::string& source) const;
};

// No row is an error: what cannot be predicted is skipped, with a reason. `settings` are those of --set; what
// was measured stays. UsageError where they leave no row to predict: an unknown key, or a value that no row
// allows.
Validation validate(const Measurements& measurements, const std::vector<std::string>& settings = {});

}  // namespace lockstep::validate
