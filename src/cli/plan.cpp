// lockstep plan RUN.toml [--search]
#include "plan/report.hpp"

#include <unistd.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/long_work.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "cli/prediction.hpp"
#include "plan/search.hpp"
#include "plan/search_report.hpp"

namespace lockstep::cli {

namespace {

int search_over(const config::RunFile& run, bool json) {
  LongWork work("search", stderr, observe::detect_terminal(STDERR_FILENO));
  const lockstep::plan::SearchResult result =
      lockstep::plan::search_layouts(run, [&](int64_t done, int64_t of) { work.update(done, of); });
  work.finish();
  if (json) print_json(search_json(result));
  if (result.best.empty()) throw RunError(nothing_fits(result));
  if (!json) print(search_text(result, text_style()));
  return exit_ok;
}

}  // namespace

int plan(const Arguments& arguments) {
  std::string file, cluster;
  std::vector<std::string> overrides;
  bool json = false, search = false;
  Flags flags("plan", "lockstep plan configs/llama3-405b-16k.toml --set cluster.nic_bandwidth=100e9");
  flags.required(file, "RUN.toml", "the run file")
      .list(overrides, "--set", "TABLE.KEY=VALUE", "overrides a key of the run file")
      .text(cluster, "--cluster", "FILE", "the cluster's figures, as `lockstep calibrate` writes them")
      .toggle(search, "--search", "ranks layouts of the run's model, GPUs and batch; --set holds a value")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;
  if (search) {
    return search_over(load_modelled_run(file, overrides, cluster, lockstep::plan::unchosen_keys()), json);
  }
  const config::RunFile run = load_modelled_run(file, overrides, cluster);
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
