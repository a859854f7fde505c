// lockstep plan RUN.toml [--search]
#include "plan/report.hpp"
#include "plan/search_report.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "cli/prediction.hpp"

namespace lockstep::cli {

namespace {

// The search evaluates from tables, which do not have all that a program of others may do.
void check_searchable(const config::SoftwareConfig& software) {
  const auto refuse = [](const char* key) {
    throw UsageError(fmt::format("software.{}: plan --search does not count it yet; set it to {}", key,
                                 std::string_view(key).starts_with("host") ? "0" : "false"));
  };
  if (software.host_seconds_per_launch > 0) refuse("host_seconds_per_launch");
  if (software.host_seconds_per_micro_batch > 0) refuse("host_seconds_per_micro_batch");
  if (software.reduce_in_place) refuse("reduce_in_place");
  if (software.fused_weight_gradients) refuse("fused_weight_gradients");
}

}  // namespace

int plan(const Arguments& arguments) {
  std::string file, cluster;
  std::vector<std::string> overrides;
  bool json = false, search = false;
  Flags flags("plan", "lockstep plan configs/llama3-405b-16k.toml --set parallel.tp=4 --set parallel.dp=256");
  flags.required(file, "RUN.toml", "the run file")
      .list(overrides, "--set", "TABLE.KEY=VALUE", "overrides a key of the run file")
      .text(cluster, "--cluster", "FILE", "the cluster's figures, as `lockstep calibrate` writes them")
      .toggle(search, "--search", "ranks all valid layouts of the run's model, GPUs and batch")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;
  const config::RunFile run = load_modelled_run(file, overrides, cluster);
  if (search) {
    check_searchable(run.software);
    const lockstep::plan::SearchResult result = lockstep::plan::search_layouts(run);
    if (json) {
      print_json(search_json(result));
    } else {
      print(search_text(result, text_style()));
    }
    return exit_ok;
  }
  checked_programs(parallel::Layout(run));
  const lockstep::plan::Plan result = lockstep::plan::plan_of(run);
  if (json) {
    print_json(plan_json(result));
  } else {
    print(plan_text(result, text_style()));
  }
  return exit_ok;
}

}  // namespace lockstep::cli
