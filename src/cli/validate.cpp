// lockstep validate [FILE.csv]
#include "validate/report.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "config/cluster_file.hpp"

namespace lockstep::cli {

int validate(const Arguments& arguments) {
  namespace v = lockstep::validate;
  std::string file;
  std::vector<std::string> settings;
  bool rows = false, json = false;
  Flags flags("validate", "lockstep validate data/published/measurements.csv --rows");
  flags
      .optional(file, "FILE.csv",
                "published measurements, a row each; without it those that Lockstep carries, "
                "data/published/measurements.csv")
      .list(settings, "--set", "TABLE.KEY=VALUE", "overrides a key of every row's run file")
      .toggle(rows, "--rows", "prints every row, with what was assumed where its cells are empty")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;
  const v::Measurements measurements =
      file.empty() ? v::own_measurements()
                   : v::read_measurements(config::read_text(file, "file of measurements"), file);
  const v::Validation result = v::validate(measurements, settings);
  if (json) {
    print_json(validation_json(result));
  } else {
    print(validation_text(result, rows, text_style()));
  }
  return exit_ok;
}

}  // namespace lockstep::cli
