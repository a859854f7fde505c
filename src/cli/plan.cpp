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

// The search evaluates from tables, which do not have all that a run file may say. What it cannot count it
// does not drop.
void check_searchable(const config::RunFile& run) {
  const auto refuse = [](bool wrong, const char* key, const char* instead) {
    if (wrong)
      throw UsageError(fmt::format("{}: plan --search does not count it yet; set it to {}", key, instead));
  };
  const config::SoftwareConfig& s = run.software;
  refuse(s.host_seconds_per_launch > 0, "software.host_seconds_per_launch", "0");
  refuse(s.host_seconds_per_micro_batch > 0, "software.host_seconds_per_micro_batch", "0");
  refuse(s.reduce_in_place, "software.reduce_in_place", "false");
  refuse(s.fused_weight_gradients, "software.fused_weight_gradients", "false");
  refuse(!s.overlap_gradients, "software.overlap_gradients", "true");
  const config::ParallelConfig& p = run.parallel;
  refuse(p.gradient_scatter == config::GradientScatter::micro_batch, "parallel.gradient_scatter",
         "\"chunk\"");
  refuse(p.layer_split == config::LayerSplit::cost, "parallel.layer_split", "\"even\"");
  refuse(p.logical_replicas() > p.dp, "parallel.replicas", "0");
  refuse(p.recompute_every > 1, "parallel.recompute_every", "1");
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
      .toggle(search, "--search", "ranks layouts of the run's model, GPUs and batch")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;
  const config::RunFile run = load_modelled_run(file, overrides, cluster);
  if (search) {
    check_searchable(run);
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
