#include "config/rules.hpp"

#include <fmt/format.h>

#include "base/units.hpp"
#include "config/batch_ramp.hpp"
#include "config/rule_set.hpp"
#include "config/schema.hpp"

namespace lockstep::config {
namespace {

double as_double(int64_t value) { return static_cast<double>(value); }

class Rules : RuleSet {
 public:
  using RuleSet::RuleSet;

  void check_all() {
    check_heads();
    check_vocab();
    check_cluster();
    check_batch();
    check_batch_ramp();
    check_learning_rate();
    check_program_size();
    check_weights();
    check_activations();
    check_tokens();
  }

 private:
  void check_heads() {
    const ModelConfig& m = run_.model;
    if (good({"model.hidden", "model.heads"})) {
      // Rotary positions turn pairs of a head's numbers, so a head has an even width.
      const auto fits = [&](int64_t heads) { return m.hidden % heads == 0 && m.hidden / heads % 2 == 0; };
      if (!fits(m.heads)) {
        const auto with_kv = [&](int64_t heads) { return fits(heads) && heads % m.kv_heads == 0; };
        std::optional<int64_t> fix;
        if (good({"model.kv_heads"})) fix = nearest_that(m.heads, range_of("model.heads"), with_kv);
        if (!fix.has_value()) fix = nearest_that(m.heads, range_of("model.heads"), fits);
        report("model.heads",
               fmt::format("must divide model.hidden = {} into heads of even width (rotary pairs)", m.hidden),
               fix);
      }
    }
    if (!good({"model.heads", "model.kv_heads"}) || m.heads % m.kv_heads == 0) return;
    const auto divides = [&](int64_t kv_heads) { return m.heads % kv_heads == 0; };
    report("model.kv_heads", fmt::format("must divide model.heads = {}", m.heads),
           nearest_that(m.kv_heads, range_of("model.kv_heads"), divides));
  }

  // The table is padded to a multiple of tp; the rows beyond the vocabulary take no part.
  void check_vocab() {
    if (!good({"model.vocab", "data.tokenizer"})) return;
    constexpr int64_t bytes = 256;
    if (run_.model.vocab >= bytes) return;
    report("model.vocab", "must be at least 256, the tokens of the byte tokenizer", bytes);
  }

  void report_multiple(const char* key, const char* inner_key, int64_t inner, std::optional<int64_t> fix) {
    report(key, fmt::format("must be a multiple of {} = {}", inner_key, inner), fix);
  }

  // 0 stands for another key's figure; a share near it is none that a link has.
  void check_zero_or(const char* key, double value, double least) {
    if (!good({key}) || value == 0 || value >= least) return;
    report(key, fmt::format("must be 0 or at least {:g}", least), 0);
  }

  void check_cluster() {
    check_zero_or("cluster.nvlink_efficiency", run_.cluster.nvlink_efficiency, 1e-6);
    check_zero_or("cluster.low_latency_bandwidth", run_.cluster.low_latency_bandwidth, 1);
    const ClusterConfig& c = run_.cluster;
    if (good({"cluster.gpus_per_node", "cluster.gpus_per_rack"}) && c.gpus_per_rack % c.gpus_per_node != 0) {
      return report_rack();
    }
    if (!good({"cluster.gpus_per_rack", "cluster.gpus_per_pod"}) || c.gpus_per_pod % c.gpus_per_rack == 0)
      return;
    report_multiple("cluster.gpus_per_pod", "cluster.gpus_per_rack", c.gpus_per_rack,
                    nearest_multiple(c.gpus_per_pod, c.gpus_per_rack, range_of("cluster.gpus_per_pod")));
  }

  // The nearest rack that divides the pod; where none does, rack and pod change together.
  void report_rack() {
    const ClusterConfig& c = run_.cluster;
    const bool pod_good = good({"cluster.gpus_per_pod"});
    std::optional<int64_t> rack;
    if (pod_good) rack = nearest_divisor(c.gpus_per_rack, c.gpus_per_node, c.gpus_per_pod);
    const bool pod_stays = rack.has_value() || !pod_good;
    if (!rack) rack = nearest_multiple(c.gpus_per_rack, c.gpus_per_node, range_of("cluster.gpus_per_rack"));
    report_multiple("cluster.gpus_per_rack", "cluster.gpus_per_node", c.gpus_per_node, rack);
    if (pod_stays || !rack) return;
    report("cluster.gpus_per_pod", fmt::format("must be a multiple of cluster.gpus_per_rack, {} then", *rack),
           nearest_multiple(c.gpus_per_pod, *rack, range_of("cluster.gpus_per_pod")));
  }

  std::string batch_rule() const {
    return fmt::format("must be a multiple of parallel.{} x parallel.micro_batch = {} x {} = {}",
                       run_.parallel.logical_replicas() == run_.parallel.dp ? "dp" : "replicas",
                       run_.parallel.logical_replicas(), run_.parallel.micro_batch, batch_unit());
  }

  void check_batch() {
    if (!good({"train.global_batch", "parallel.dp", "parallel.replicas", "parallel.micro_batch"})) return;
    if (run_.train.global_batch % batch_unit() == 0) return;
    report("train.global_batch", batch_rule(),
           nearest_multiple(run_.train.global_batch, batch_unit(), range_of("train.global_batch")));
  }

  void check_batch_ramp() {
    if (!good({"train.batch_ramp", "train.global_batch", "parallel.dp", "parallel.replicas",
               "parallel.micro_batch"})) {
      return;
    }
    BatchStage last;
    for (const std::string& entry : run_.train.batch_ramp) {
      const auto stage = parse_batch_stage(entry);
      const auto refuse = [&](const std::string& rule) {
        report("train.batch_ramp", fmt::format("\"{}\": {}", entry, rule));
      };
      if (!stage) return refuse("must be \"SEQUENCES:LAST_STEP\", such as \"8:100\"");
      if (stage->sequences % batch_unit() != 0) return refuse("its sequences " + batch_rule());
      if (stage->sequences <= last.sequences || stage->last_step <= last.last_step)
        return refuse("must have more sequences and a later step than the entry before it");
      if (stage->sequences >= run_.train.global_batch)
        return refuse(
            fmt::format("must have fewer sequences than train.global_batch = {}", run_.train.global_batch));
      last = *stage;
    }
  }

  void check_learning_rate() {
    if (!good({"train.schedule", "train.decay_steps", "train.steps"})) return;
    const TrainConfig& t = run_.train;
    if (t.decay_steps > 0 && t.schedule != LearningRateSchedule::wsd) {
      report("train.decay_steps", "is of train.schedule = \"wsd\" alone", 0);
    } else if (t.decay_steps > t.steps) {
      report("train.decay_steps", fmt::format("must be at most train.steps = {}", t.steps), t.steps);
    }
  }

  // The rest of the program holds what follows in memory, in 64-bit integers of bytes, or exactly in a
  // number of JSON. The limits are thousands of times what any known run needs.

  void check_program_size() {
    if (!good({"train.global_batch", "parallel.dp", "parallel.replicas", "parallel.micro_batch",
               "parallel.pp", "parallel.virtual_stages"}))
      return;
    constexpr int64_t most = 1 << 22;
    const int64_t chunks = run_.parallel.pp * run_.parallel.virtual_stages;
    const int64_t micro_batches = std::max<int64_t>(run_.micro_batches(), 1);
    if (chunks * micro_batches <= most) return;
    const int64_t fix = most / chunks / run_.parallel.rounds() * batch_unit();
    report(
        "train.global_batch",
        fmt::format("{} micro-batches through pp x virtual_stages = {} chunks are more than {} passes a step "
                    "(larger parallel.micro_batch makes fewer)",
                    format_thousands(micro_batches), chunks, format_thousands(most)),
        fix >= 1 && fix <= range_of("train.global_batch").high ? std::optional(fix) : std::nullopt);
  }

  void check_weights() {
    if (!good({"model.layers", "model.hidden", "model.ffn", "model.vocab"})) return;
    constexpr double most = 1e15;
    const double hidden = as_double(run_.model.hidden);
    const double layer = hidden * (4 * hidden + 3 * as_double(run_.model.ffn));
    const double tables = 2 * hidden * as_double(run_.model.vocab);
    if (tables + layer * as_double(run_.model.layers) <= most) return;
    const auto fix = static_cast<int64_t>((most - tables) / layer);
    report("model.layers", "the model has more than 1e15 parameters",
           fix >= 1 ? std::optional(fix) : std::nullopt);
  }

  void check_activations() {
    if (!good({"train.sequence", "train.global_batch", "parallel.dp", "parallel.tp", "model.layers",
               "model.hidden", "model.ffn", "model.vocab", "parallel.cp", "parallel.sequence_parallel"}))
      return;
    constexpr double most = 5e16;
    const ModelConfig& m = run_.model;
    const double a_token =
        as_double(m.layers) * (4 * as_double(m.hidden) + 3 * as_double(m.ffn)) + as_double(m.vocab);
    const double sequences = as_double(std::max<int64_t>(run_.train.global_batch / run_.parallel.dp, 1));
    if (a_token * sequences * as_double(run_.train.sequence) <= most) return;
    const int64_t fix = static_cast<int64_t>(most / a_token / sequences) / sequence_unit() * sequence_unit();
    report("train.sequence", "the activations of one replica's step are more than 5e16 numbers",
           fix >= 1 ? std::optional(fix) : std::nullopt);
  }

  void check_tokens() {
    if (!good({"train.steps", "train.global_batch", "train.sequence"})) return;
    const int64_t most = range_of("train.tokens").high;
    const int64_t a_step = run_.train.global_batch * run_.train.sequence;
    if (run_.train.steps <= most / a_step) return;
    const int64_t fix = most / a_step;
    report("train.steps",
           fmt::format("steps x global_batch x sequence are more than {} tokens", format_thousands(most)),
           fix >= 1 ? std::optional(fix) : std::nullopt);
  }
};

}  // namespace

Problem problem_of(const RunFile& run, const std::string& key, const std::string& rule) {
  const auto set_at = run.origin.where.find(key);
  const bool written = set_at != run.origin.where.end();
  std::string value = to_literal(read_key(*find_key(key), run));
  if (!written) value += " (default)";
  return {written ? set_at->second : run.origin.file, key, value, rule, key, ""};
}

void check_rules(const RunFile& run, const std::set<std::string>& bad, std::vector<Problem>& problems) {
  Rules(run, bad, problems).check_all();
  check_parallel_rules(run, bad, problems);
}

}  // namespace lockstep::config
