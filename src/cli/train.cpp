// lockstep train RUN.toml
#include <fmt/format.h>

#include <csignal>
#include <filesystem>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/machine.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "cli/run_text.hpp"
#include "cli/train_run.hpp"
#include "config/batch_ramp.hpp"
#include "data/corpus.hpp"

namespace lockstep::cli {

namespace {

std::string opening(const config::RunFile& run) {
  const int cores = usable_cores();
  return fmt::format("{}; {} steps, {} tokens, {}; {} worker{} on {} core{}", run_text(run), run.train.steps,
                     format_count(static_cast<double>(
                         config::sequences_before_step(run.train, run.train.steps + 1) * run.train.sequence)),
                     config::to_string(run.train.dtype), run.parallel.world_size(),
                     run.parallel.world_size() == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
}

// The text as the workers will read it: what is wrong with it is said before anything is started or written.
void check_text(const config::RunFile& run) {
  data::CorpusOptions options;
  options.text = run.data.text;
  options.held_out = run.data.held_out;
  options.sequence = run.train.sequence;
  data::load_corpus(options);
}

observe::RunFolder make_folder(const std::string& run_dir, const config::RunFile& run) {
  const std::string resolved = config::to_toml(run);
  return run_dir.empty() ? observe::RunFolder::create("runs", run.name, resolved)
                         : observe::RunFolder::create_at(run_dir, resolved);
}

}  // namespace

int train(const Arguments& arguments) {
  std::string file, run_dir;
  std::vector<std::string> overrides;
  bool json = false;
  Flags flags("train", "lockstep train configs/tiny.toml --set train.steps=50");
  flags.required(file, "RUN.toml", "the run file")
      .list(overrides, "--set", "TABLE.KEY=VALUE", "overrides a key of the run file")
      .text(run_dir, "--run-dir", "DIR", "the run folder itself, new or empty; otherwise runs/NAME-TIME-ID")
      .toggle(json, "--json", "one JSON document on standard output; step lines go to standard error");
  if (!flags.parse(arguments)) return exit_ok;

  const config::RunFile run = config::load_run_file(file, overrides);
  config::check_for_training(run);
  const std::filesystem::path worker = resilience::find_worker();
  check_text(run);
  checked_programs(parallel::Layout(run));  // proved before anything is started

  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves is an error to report, not a death without a word
  std::FILE* out = json ? stderr : stdout;
  const observe::RunFolder folder = make_folder(run_dir, run);
  fmt::print(out, "{}\n", opening(run));
  TrainRun train_run(run, folder, out);
  const resilience::LaunchEnd end = train_run.go(worker);
  if (end.kind == resilience::LaunchEnd::Kind::interrupted) return 128 + end.signal;
  if (json) {
    print_json(train_run.result());
  } else {
    print(train_run.summary());
  }
  return exit_ok;
}

}  // namespace lockstep::cli
