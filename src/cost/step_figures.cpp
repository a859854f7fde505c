#include "cost/step_figures.hpp"

#include "base/json.hpp"
#include "cluster/hardware.hpp"
#include "model/parameters.hpp"

namespace lockstep::cost {

double StepSplit::total() const {
  double sum = 0;
  for (const double part : values()) sum += part;
  return sum;
}

StepFigures step_figures(const config::RunFile& run, double seconds, double bubble_fraction,
                         const StepSplit& split) {
  const cluster::Hardware hardware(run.cluster, run.train.dtype);
  const double gpus = static_cast<double>(run.parallel.world_size());
  StepFigures f;
  f.seconds = seconds;
  f.tokens = run.train.global_batch * run.train.sequence;
  f.tokens_per_second = static_cast<double>(f.tokens) / seconds;
  const auto flops_per_gpu = [&](bool causal) {
    return model::flops_per_token(run.model, run.train.sequence, causal) * f.tokens_per_second / gpus;
  };
  f.tflops_per_gpu = flops_per_gpu(false) / 1e12;
  f.mfu = flops_per_gpu(false) / hardware.peak_flops();
  f.mfu_causal = flops_per_gpu(true) / hardware.peak_flops();
  f.bubble_fraction = bubble_fraction;
  f.split = split;
  return f;
}

Json layout_json(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  Json json;
  json["tp"] = p.tp;
  json["cp"] = p.cp;
  json["pp"] = p.pp;
  json["dp"] = p.dp;
  json["virtual_stages"] = p.virtual_stages;
  json["micro_batch"] = p.micro_batch;
  json["micro_batches"] = run.micro_batches();
  json["schedule"] = config::to_string(p.schedule);
  json["zero"] = p.zero;
  // As the run file spells it: "none", "full" or a list.
  if (p.recompute.empty()) {
    json["recompute"] = "none";
  } else if (p.recompute == std::vector<std::string>{"full"}) {
    json["recompute"] = "full";
  } else {
    json["recompute"] = p.recompute;
  }
  json["world_size"] = p.world_size();
  return json;
}

Json model_json(const config::RunFile& run) {
  Json json;
  json["parameters"] = model::parameter_count(run.model);
  json["flops_per_token"] = model::flops_per_token(run.model, run.train.sequence, false);
  return json;
}

Json step_json(const StepFigures& f) {
  Json json;
  json["seconds"] = f.seconds;
  json["tokens"] = f.tokens;
  json["tokens_per_second"] = f.tokens_per_second;
  json["tflops_per_gpu"] = f.tflops_per_gpu;
  json["mfu"] = f.mfu;
  json["mfu_causal"] = f.mfu_causal;
  json["bubble_fraction"] = f.bubble_fraction;
  Json split;
  const auto values = f.split.values();
  for (size_t i = 0; i < values.size(); ++i) split[std::string(StepSplit::names[i])] = values[i];
  json["split_seconds"] = split;
  return json;
}

}  // namespace lockstep::cost
