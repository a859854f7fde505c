// Rules that only training has.
#include <fmt/format.h>

#include <algorithm>
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

// What other training programs do and this one does not. Figures of the host and the network only predict.
void check_software(const RunFile& run, std::vector<Problem>& problems) {
  const SoftwareConfig& s = run.software;
  const auto refuse = [&](bool differs, const char* key, const char* fix, const char* rule) {
    if (!differs) return;
    problems.push_back(problem_of(run, key, rule));
    problems.back().fix = fix;
  };
  refuse(s.attention != AttentionKernel::flash, "software.attention", "\"flash\"",
         "the trainer's attention keeps no scores; others are modelled only");
  refuse(s.dropout, "software.dropout", "false", "the trainer has no dropout; it is modelled only");
  refuse(s.cross_entropy != CrossEntropy::fused, "software.cross_entropy", "\"fused\"",
         "the trainer's loss reads the logits as they are; others are modelled only");
  refuse(s.gradient_dtype != GradientDtype::fp32, "software.gradient_dtype", "\"fp32\"",
         "the trainer adds gradients up in fp32; other types are modelled only");
  refuse(!s.overlap_gradients, "software.overlap_gradients", "true",
         "the trainer reduces gradients beside backward passes");
  refuse(s.overlap_parameters, "software.overlap_parameters", "false",
         "the trainer gathers parameters after the optimizer");
  refuse(!s.recompute_early_stop, "software.recompute_early_stop", "true",
         "the trainer does not recompute a layer's last product");
  refuse(s.tensor_parallel_copies, "software.tensor_parallel_copies", "false",
         "the trainer's collectives need no further copy");
  refuse(s.tensor_parallel_overlap > 0, "software.tensor_parallel_overlap", "0",
         "the trainer's tensor-parallel collectives block");
  refuse(s.reduce_in_place, "software.reduce_in_place", "false",
         "the trainer's reduced gradients lie in a buffer of their own");
  refuse(s.fused_weight_gradients, "software.fused_weight_gradients", "false",
         "the trainer computes a weight's gradient before it adds it");
  refuse(s.loss_memory > 0, "software.loss_memory", "0", "the trainer's loss works in place");
  const std::vector<std::string>& again = run.parallel.recompute;
  refuse(std::find(again.begin(), again.end(), "second_products") != again.end(), "parallel.recompute",
         "\"full\"", "the trainer does not recompute single products");
  refuse(s.elementwise_traffic != 1, "software.elementwise_traffic", "1",
         "the trainer's kernels move what the program counts");
}

void check_model(const RunFile& run, std::vector<Problem>& problems) {
  if (run.model.tie_embeddings && run.parallel.pp == 1 && run.parallel.virtual_stages > 1) {
    problems.push_back(
        problem_of(run, "parallel.virtual_stages",
                   "training needs one chunk with tied embeddings on one pipeline rank: embedding and output "
                   "matrix are one tensor there"));
    problems.back().fix = "1";
  }
  if (run.model.architecture == Architecture::llama) return;
  problems.push_back(
      problem_of(run, "model.architecture", "training computes llama models; others are modelled only"));
  problems.back().fix = "\"llama\"";
}

}  // namespace

void check_for_training(const RunFile& run) {
  std::vector<Problem> problems;
  check_model(run, problems);
  check_software(run, problems);
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
