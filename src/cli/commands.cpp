#include "cli/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/terminal_text.hpp"
#include "cli/output.hpp"

namespace lockstep::cli {

namespace {

constexpr Feature table[] = {
    {"train", "trains for real, with worker processes on this machine", true},
    {"train --resume", "goes on from the last whole checkpoint", false},
    {"train --inject", "rehearses a fault", false},
    {"train --no-supervisor", "runs the workers without a supervisor", false},
    {"simulate", "one or more training steps of every rank of a modelled cluster", true},
    {"simulate --trace FILE.pftrace", "writes Perfetto's own format", true},
    {"simulate --why", "critical path, what if parts were free, who made others wait", true},
    {"plan", "memory, step time, MFU, bubble, training time and cost of one layout", true},
    {"plan --search", "evaluates layouts of a run in memory and time, and ranks them", true},
    {"bench collective", "measures this machine's collectives, nccl-tests style", true},
    {"bench kernels", "measures matrix products and attention", false},
    {"bench step", "measures training steps", false},
    {"bench search", "measures the layout search", true},
    {"runs", "lists the runs of a folder", true},
    {"runs export", "writes the steps of a run as CSV or JSON", true},
    {"runs compare", "sets runs side by side", false},
    {"doctor", "what this build and machine can do, and what to install for the rest", true},
    {"campaign", "many days with failures, checkpoints, spares and restarts", false},
    {"validate", "predicts published measurements and prints the errors", true},
    {"facts", "computes public claims about the training of Llama 3 405B", true},
    {"sample", "writes text from a checkpoint", false},
    {"calibrate", "measures this machine and writes a cluster file", true},
    {"diagnose", "reads flight-recorder dumps and names the culprit", false},
    {"data prepare", "turns text into token shards", false},
    {"data tokenizer", "trains or inspects a BPE tokenizer", false},
    {"checkpoint inspect", "lists what a checkpoint holds", false},
    {"checkpoint verify", "checks a checkpoint's sums", false},
    {"checkpoint reshard", "rewrites a checkpoint for another layout", false},
    {"checkpoint export-hf", "writes a Hugging Face model", false},
    {"checkpoint import-hf", "reads a Hugging Face model", false},
    {"serve", "the dashboard", false},
};

struct Entry {
  std::string_view name;
  int (*run)(const Arguments&);
};
constexpr Entry entries[] = {
    {"train", train},  //
    {"simulate", simulate},
    {"plan", plan},
    {"bench collective", bench_collective},
    {"bench search", bench_search},
    {"runs", runs},
    {"runs export", runs_export},
    {"doctor", doctor},
    {"calibrate", calibrate},
    {"validate", validate},
    {"facts", facts},
};

constexpr std::string_view out_of_memory =
    "out of memory: free some (or raise `ulimit -v`), or ask for less: fewer GPUs (a smaller parallel.dp), "
    "fewer micro-batches (a larger parallel.micro_batch), fewer ranks in --ranks or --steps with --trace, "
    "fewer cluster.rack_uplinks and cluster.pod_uplinks";
constexpr std::string_view status_page = "docs/status.md lists what works";

std::string first_word(std::string_view name) { return std::string(name.substr(0, name.find(' '))); }

// Words of the commands (or, after `before`, of their second level), in the table's order, each once.
enum class Which { all, built };

std::vector<std::string> words_after(std::string_view before, Which which = Which::all) {
  std::vector<std::string> out;
  for (const Feature& feature : table) {
    if (which == Which::built && !feature.built) continue;
    std::string_view rest = feature.name;
    if (!before.empty()) {
      if (!rest.starts_with(std::string(before) + " ")) continue;
      rest.remove_prefix(before.size() + 1);
    }
    const std::string word = first_word(rest);
    if (word.starts_with("--")) continue;
    if (std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
  }
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

int print_help() {
  std::string text = filled(
      "lockstep trains Llama-class models over many workers, and simulates the same program on a modelled "
      "cluster.");
  text += "\n  lockstep COMMAND RUN.toml [--set table.key=value]... [--json] [options]\n\n";
  std::vector<std::string> absent;
  for (const Feature& feature : table) {
    if (feature.built) {
      text += fmt::format("  {:<30}{}\n", feature.name, feature.does);
    } else if (const std::string word = first_word(feature.name); (absent.empty() || absent.back() != word) &&
                                                                  find_feature(word) == nullptr &&
                                                                  word != "bench") {
      absent.push_back(word);
    } else if (feature.name.find(' ') == std::string_view::npos) {
      absent.emplace_back(feature.name);
    }
  }
  text +=
      "\n" + filled(fmt::format("not built yet: {} ({})", joined(absent), status_page), terminal_columns, 2);
  text += "\n  lockstep COMMAND --help   options, defaults and an example\n";
  text += "  lockstep --version\n";
  text += "\nexit code 0: done; 1: the run failed; 2: the run file or a flag is wrong; 130: Ctrl-C\n";
  print(text);
  return exit_ok;
}

[[noreturn]] void refuse(const std::string& name, std::string_view before) {
  const std::vector<std::string> known = words_after(before);
  const std::string full = before.empty() ? name : fmt::format("{} {}", before, name);
  const Feature* feature = find_feature(full);
  const bool absent_group = before.empty() && std::find(known.begin(), known.end(), name) != known.end();
  if (feature != nullptr || absent_group) {
    throw UsageError(fmt::format("`lockstep {}` is not built yet; {}", full, status_page));
  }
  // What is proposed works.
  const std::vector<std::string> built = words_after(before, Which::built);
  throw UsageError(
      fmt::format("there is no command `lockstep {}`; the nearest is `lockstep {}{}`\n  commands: {}", full,
                  before.empty() ? "" : std::string(before) + " ", nearest_name(name, built), joined(built)));
}

// Two words name a command where the first alone is a group ("bench collective") or has a second level
// ("runs export").
int dispatch(const Arguments& arguments) {
  const std::string& first = arguments[0];
  const auto find = [](std::string_view name) -> const Entry* {
    const auto* found = std::find_if(std::begin(entries), std::end(entries),
                                     [&](const Entry& entry) { return entry.name == name; });
    return found == std::end(entries) ? nullptr : found;
  };
  if (arguments.size() > 1 && !arguments[1].starts_with("-")) {
    const std::string both = first + " " + arguments[1];
    if (const Entry* entry = find(both)) return entry->run({arguments.begin() + 2, arguments.end()});
    const Feature* absent = find_feature(both);
    if (absent != nullptr) refuse(arguments[1], first);
  }
  if (const Entry* entry = find(first)) return entry->run({arguments.begin() + 1, arguments.end()});
  const bool group_is_built = std::any_of(std::begin(table), std::end(table), [&](const Feature& feature) {
    return feature.built && feature.name.starts_with(first + " ");
  });
  if (!group_is_built) refuse(first, "");
  if (arguments.size() > 1 && !arguments[1].starts_with("-")) refuse(arguments[1], first);
  std::string text;
  for (const Feature& feature : table) {
    if (feature.built && feature.name.starts_with(first + " ")) {
      text += fmt::format("  lockstep {:<18}{}\n", feature.name, feature.does);
    }
  }
  if (arguments.size() > 1 && (arguments[1] == "--help" || arguments[1] == "-h")) {
    print(text);
    return exit_ok;
  }
  throw UsageError(fmt::format("`lockstep {}` needs one more word\n{}", first, text));
}

}  // namespace

std::span<const Feature> features() { return table; }

const Feature* find_feature(std::string_view name) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [&](const Feature& feature) { return feature.name == name; });
  return found == std::end(table) ? nullptr : found;
}

int run(const Arguments& arguments) {
  int code = exit_ok;
  try {
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
      code = print_help();
    } else if (arguments[0] == "--version") {
      print("lockstep " LOCKSTEP_VERSION "\n");
    } else if (arguments[0].starts_with("-")) {
      throw UsageError(
          fmt::format("`lockstep` has no flag {}; the nearest is {}", arguments[0],
                      nearest_name(arguments[0], std::vector<std::string>{"--help", "--version"})));
    } else {
      code = dispatch(arguments);
    }
    finish_output();
  } catch (const UsageError& error) {
    complain(error.what());
    return exit_usage;
  } catch (const RunError& error) {
    complain(error.what());
    return exit_run_failed;
  } catch (const std::bad_alloc&) {
    complain(out_of_memory);
    return exit_run_failed;
  } catch (const std::length_error&) {  // more elements than any memory holds
    complain(out_of_memory);
    return exit_run_failed;
  } catch (const std::exception& error) {
    complain(fmt::format("this is a fault in Lockstep itself: {}", error.what()));
    return exit_run_failed;
  }
  return code;
}

}  // namespace lockstep::cli
