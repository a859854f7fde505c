// Rules that only training has.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "config/problem.hpp"
#include "config/rules.hpp"
#include "config/run_file.hpp"
#include "config/value.hpp"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& places) {
  std::string out;
  for (const std::string& place : places) out += (out.empty() ? "" : ", ") + place;
  return out;
}

// What is wrong with the text; empty when it can be read.
std::string text_rule(const RunFile& run) {
  const std::string& text = run.data.text;
  if (text.empty())
    return "training needs a text: a folder of .txt documents, some of them named in data.held_out";
  std::error_code error;
  const fs::file_status status = fs::status(text, error);
  if (!fs::exists(status)) {
    const auto& places = run.origin.text_places;
    return fmt::format("no such folder or file; looked at: {}", places.empty() ? text : joined(places));
  }
  if (!fs::is_directory(status)) {
    return std::ifstream(text).good() ? "" : "this file cannot be read; check its permissions";
  }
  fs::directory_iterator entries(text, error);
  if (error) return fmt::format("this folder cannot be read: {}", error.message());
  for (const fs::directory_entry& entry : entries) {
    if (entry.path().extension() == ".txt") return "";
  }
  return "this folder holds no .txt document";
}

}  // namespace

void check_for_training(const RunFile& run) {
  std::vector<Problem> problems;
  if (run.cluster.preset != "local") {
    problems.push_back(
        problem_of(run, "cluster.preset", "training runs on this machine; other clusters are modelled only"));
    problems.back().fix = "\"local\"";
  }
  if (run.cluster.gpus > max_local_workers) {
    problems.push_back(problem_of(run, "cluster.gpus",
                                  fmt::format("training starts at most {} workers", max_local_workers)));
  }
  const std::string& order = run.parallel.rank_order;
  if (order.find("dp") < order.find("cp")) {
    problems.push_back(
        problem_of(run, "parallel.rank_order",
                   "training adds gradients up replica after replica, so cp stands before dp"));
    problems.back().fix = "\"tp-cp-pp-dp\"";
  }
  if (!run.data.prefetch) {
    problems.push_back(problem_of(run, "data.prefetch", "training always reads the next batch ahead"));
    problems.back().fix = "true";
  }
  const std::string rule = text_rule(run);
  if (!rule.empty()) problems.push_back(problem_of(run, "data.text", rule));
  if (!problems.empty()) throw UsageError(to_string(problems));
}

}  // namespace lockstep::config
