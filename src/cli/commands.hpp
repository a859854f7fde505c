// Every command and flag of the interface in one table: what is built, and what is known and absent.
// Dispatch, help and `doctor --json` read it; a test holds docs/status.md against it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct Feature {
  std::string_view name;  // "train", "bench collective", "train --resume"
  std::string_view does;  // one clause
  bool built = false;
};
std::span<const Feature> features();
const Feature* find_feature(std::string_view name);  // null when there is none of that name

using Arguments = std::vector<std::string>;

// Runs `lockstep ARGUMENTS...`, prints what went wrong to standard error, and returns the exit code.
int run(const Arguments& arguments);

// The commands: each takes its arguments without its own name and returns an exit code.
int train(const Arguments& arguments);
int plan(const Arguments& arguments);
int simulate(const Arguments& arguments);
int bench_collective(const Arguments& arguments);
int bench_search(const Arguments& arguments);
int runs(const Arguments& arguments);
int runs_export(const Arguments& arguments);
int doctor(const Arguments& arguments);
int calibrate(const Arguments& arguments);
int validate(const Arguments& arguments);
int facts(const Arguments& arguments);

}  // namespace lockstep::cli
