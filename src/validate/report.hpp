// What `lockstep validate` prints.
#pragma once

#include <string>

#include "base/json_fwd.hpp"
#include "cost/text.hpp"
#include "validate/validation.hpp"

namespace lockstep::validate {

// rows, predicted, skipped [{row line source model n_gpus reason}], mape_step_time, max_error, mape_memory,
// by_source {name: the same with counts}, cases. Errors are shares (0.04 is 4 %), null where there is no row;
// of means and max_error without sign, of cases with it: predicted / measured - 1.
Json validation_json(const Validation& validation);

// Tables by source, the worst rows and what was skipped; with `rows` every row and what was assumed of it.
std::string validation_text(const Validation& validation, bool rows, const cost::Style& style);

}  // namespace lockstep::validate
