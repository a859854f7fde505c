#include "config/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <optional>

#include "base/units.hpp"
#include "config/batch_ramp.hpp"
#include "config/schema.hpp"

namespace lockstep::config {
namespace {

struct Range {
  int64_t low, high;
};

Range range_of(const std::string& key) {
  const Rule& rule = find_key(key)->rule;
  return {static_cast<int64_t>(rule.low), static_cast<int64_t>(rule.high)};
}

// The integer of the range nearest to `value` for which `works`; the larger of two equally near.
template <class Works>
std::optional<int64_t> nearest_that(int64_t value, Range range, Works works) {
  const int64_t farthest = std::max(value - range.low, range.high - value);
  for (int64_t distance = 0; distance <= farthest; ++distance) {
    if (value + distance <= range.high && works(value + distance)) return value + distance;
    if (value - distance >= range.low && works(value - distance)) return value - distance;
  }
  return std::nullopt;
}

// The positive multiple of `unit` nearest to `value`, the larger of two equally near, inside the range.
std::optional<int64_t> nearest_multiple(int64_t value, int64_t unit, Range range) {
  const int64_t first = (std::max<int64_t>(range.low, 1) + unit - 1) / unit;
  const int64_t last = range.high / unit;
  if (first > last) return std::nullopt;
  return std::clamp((value + unit / 2) / unit, first, last) * unit;
}

double as_double(int64_t value) { return static_cast<double>(value); }

class Rules {
 public:
  Rules(const RunFile& run, const std::set<std::string>& bad, std::vector<Problem>& problems)
      : run_(run), bad_(bad), problems_(problems) {}

  void check_all() {
    check_heads();
    check_tensor_parallel();
    check_vocab();
    check_sequence();
    check_cluster();
    check_world();
    check_replicas();
    check_batch();
    check_batch_ramp();
    check_learning_rate();
    check_schedule();
    check_memory_choices();
    check_chunks();
    check_program_size();
    check_weights();
    check_activations();
    check_tokens();
  }

 private:
  bool good(std::initializer_list<const char*> keys) const {
    return std::none_of(keys.begin(), keys.end(), [&](const char* key) { return bad_.count(key) > 0; });
  }

  void report(const std::string& key, const std::string& rule, std::optional<int64_t> fix = std::nullopt) {
    Problem problem = problem_of(run_, key, rule);
    if (fix.has_value()) problem.fix = to_literal(*fix);
    problems_.push_back(problem);
  }

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

  void check_tensor_parallel() {
    const ModelConfig& m = run_.model;
    const int64_t tp = run_.parallel.tp;
    if (!good({"parallel.tp", "model.heads", "model.kv_heads", "model.ffn"})) return;
    // Fewer key and value heads than ranks: each is copied to tp / kv_heads of them.
    const auto kv_fits = [&](int64_t ranks) { return m.kv_heads % ranks == 0 || ranks % m.kv_heads == 0; };
    const auto works = [&](int64_t ranks) {
      return m.heads % ranks == 0 && m.ffn % ranks == 0 && kv_fits(ranks);
    };
    const std::optional<int64_t> fix = nearest_that(tp, range_of("parallel.tp"), works);
    const auto check = [&](const char* key, int64_t size) {
      if (size % tp != 0) report("parallel.tp", fmt::format("must divide {} = {}", key, size), fix);
    };
    check("model.heads", m.heads);
    if (!kv_fits(tp)) {
      report("parallel.tp", fmt::format("must divide model.kv_heads = {} or be a multiple of it", m.kv_heads),
             fix);
    }
    check("model.ffn", m.ffn);
  }

  // The table is padded to a multiple of tp; the rows beyond the vocabulary take no part.
  void check_vocab() {
    if (!good({"model.vocab", "data.tokenizer"})) return;
    constexpr int64_t bytes = 256;
    if (run_.model.vocab >= bytes) return;
    report("model.vocab", "must be at least 256, the tokens of the byte tokenizer", bytes);
  }

  void check_sequence() {
    if (!good({"train.sequence", "parallel.tp", "parallel.cp", "parallel.sequence_parallel"})) return;
    const int64_t tp = run_.parallel.tp, cp = run_.parallel.cp, sequence = run_.train.sequence;
    const int64_t unit = cp > 1 ? 2 * cp * tp : run_.parallel.sequence_parallel ? tp : 1;
    if (sequence % unit == 0) return;
    const std::string rule =
        cp > 1 ? fmt::format("must be a multiple of 2 x parallel.cp x parallel.tp = 2 x {} x {} = {}", cp, tp,
                             unit)
               : fmt::format("must be a multiple of parallel.tp = {} with sequence_parallel", tp);
    report("train.sequence", rule, nearest_multiple(sequence, unit, range_of("train.sequence")));
  }

  void check_cluster() {
    const ClusterConfig& c = run_.cluster;
    const auto check = [&](const char* key, int64_t size, const char* inner_key, int64_t inner) {
      if (!good({key, inner_key}) || size % inner == 0) return;
      report(key, fmt::format("must be a multiple of {} = {}", inner_key, inner),
             nearest_multiple(size, inner, range_of(key)));
    };
    check("cluster.gpus_per_rack", c.gpus_per_rack, "cluster.gpus_per_node", c.gpus_per_node);
    check("cluster.gpus_per_pod", c.gpus_per_pod, "cluster.gpus_per_rack", c.gpus_per_rack);
  }

  void check_world() {
    const ParallelConfig& p = run_.parallel;
    const int64_t gpus = run_.cluster.gpus, most = run_.cluster.max_gpus;
    const bool mesh_good = good({"parallel.tp", "parallel.cp", "parallel.pp", "parallel.dp"});
    const bool limited = good({"cluster.max_gpus"}) && most > 0;
    if (good({"cluster.gpus"}) && limited && gpus > most) {
      const bool world_fits = mesh_good && p.world_size() <= most;
      report("cluster.gpus", fmt::format("the cluster has {} GPUs (cluster.max_gpus)", most),
             world_fits ? p.world_size() : most);
    }
    if (!mesh_good || !good({"cluster.gpus"})) return;
    const int64_t world = p.world_size();
    if (gpus == world) return;
    const int64_t replica = p.tp * p.cp * p.pp;
    std::string rule =
        fmt::format("must be tp x cp x pp x dp = {} x {} x {} x {} = {}", p.tp, p.cp, p.pp, p.dp, world);
    const bool by_replicas = gpus % replica == 0 && gpus / replica <= range_of("parallel.dp").high;
    const int64_t highest = limited ? most : range_of("cluster.gpus").high;
    if (world <= highest) {
      if (by_replicas) rule += fmt::format(" (or parallel.dp = {})", gpus / replica);
      report("cluster.gpus", rule, world);
    } else {
      report("cluster.gpus", rule);
      if (!by_replicas) return;
      problems_.back().fix_key = "parallel.dp";
      problems_.back().fix = to_literal(gpus / replica);
    }
  }

  void check_replicas() {
    if (!good({"parallel.dp", "parallel.replicas"})) return;
    const ParallelConfig& p = run_.parallel;
    if (p.dp <= p.logical_replicas()) return;
    report("parallel.replicas", fmt::format("must be at least parallel.dp = {}", p.dp), p.dp);
  }

  // Sequences of a step are dealt to logical replicas in whole micro-batches.
  int64_t batch_unit() const { return run_.parallel.logical_replicas() * run_.parallel.micro_batch; }
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
        report("train.batch_ramp", fmt::format("\"{}\" {}", entry, rule));
      };
      if (!stage) return refuse("must be \"SEQUENCES:LAST_STEP\", such as \"8:100\"");
      if (stage->sequences % batch_unit() != 0) return refuse(batch_rule());
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

  void check_schedule() {
    if (!good({"parallel.schedule", "parallel.pp", "parallel.virtual_stages"})) return;
    const ParallelConfig& p = run_.parallel;
    if (p.schedule != ScheduleKind::interleaved && p.virtual_stages > 1) {
      report("parallel.virtual_stages",
             "more than one chunk a rank needs parallel.schedule = \"interleaved\"", 1);
    }
    if (good({"model.tie_embeddings"}) && run_.model.tie_embeddings && p.pp == 1 && p.virtual_stages > 1) {
      report("parallel.virtual_stages",
             "must be 1 with tied embeddings on one pipeline rank: embedding and output matrix are one "
             "tensor there",
             1);
    }
  }

  void check_memory_choices() {
    const ParallelConfig& p = run_.parallel;
    if (good({"parallel.zero", "parallel.gradient_scatter"}) &&
        p.gradient_scatter == GradientScatter::micro_batch && p.zero < 2) {
      report("parallel.gradient_scatter", fmt::format("needs parallel.zero = 2 or 3, not {}", p.zero));
      problems_.back().fix = to_literal(std::string(to_string(GradientScatter::chunk)));
    }
    if (!good({"parallel.recompute", "parallel.recompute_every", "parallel.gathered_input"})) return;
    if (p.recompute_every > 1 && p.recompute.empty()) {
      report("parallel.recompute_every", "needs parallel.recompute to say what is computed again", 1);
    }
    if (std::find(p.recompute.begin(), p.recompute.end(), "norm") != p.recompute.end() &&
        p.gathered_input == GatheredInput::keep) {
      report("parallel.gathered_input", "a norm that is computed again has no output to keep");
      problems_.back().fix = to_literal(std::string(to_string(GatheredInput::gather_again)));
    }
  }

  // Layers are dealt evenly to pp x virtual_stages chunks, as if the first and the last had some more than
  // they have: layers + first_stage_less_layers + last_stage_less_layers must divide.
  void check_chunks() {
    if (!good({"model.layers", "parallel.pp", "parallel.virtual_stages", "parallel.first_stage_less_layers",
               "parallel.last_stage_less_layers"})) {
      return;
    }
    const int64_t chunks = run_.parallel.pp * run_.parallel.virtual_stages;
    const int64_t first = run_.parallel.first_stage_less_layers, last = run_.parallel.last_stage_less_layers;
    if (run_.parallel.layer_split == LayerSplit::cost) {
      const auto refuse = [&](const char* key, int64_t less) {
        if (less > 0)
          report(key, "parallel.layer_split = \"cost\" finds the layers of every chunk itself", 0);
      };
      refuse("parallel.first_stage_less_layers", first);
      refuse("parallel.last_stage_less_layers", last);
      return;
    }
    const auto works = [&](int64_t layers, int64_t less_first, int64_t less_last) {
      const int64_t dealt = layers + less_first + less_last;
      return dealt % chunks == 0 && std::max(less_first, less_last) <= dealt / chunks;
    };
    const int64_t layers = run_.model.layers;
    if ((layers + first + last) % chunks != 0) {
      std::string rule = fmt::format(
          "model.layers + first_stage_less_layers + last_stage_less_layers = {} + {} + {} must be a multiple "
          "of "
          "pp x virtual_stages = {} x {} = {}",
          layers, first, last, run_.parallel.pp, run_.parallel.virtual_stages, chunks);
      const int64_t lacking = (chunks - layers % chunks) % chunks;
      if (works(layers, lacking - lacking / 2, lacking / 2)) {
        rule += fmt::format(" (or first_stage_less_layers = {} and last_stage_less_layers = {})",
                            lacking - lacking / 2, lacking / 2);
      }
      rule += ", or layer_split = \"cost\"";
      report("model.layers", rule, nearest_that(layers, range_of("model.layers"), [&](int64_t other) {
               return works(other, first, last);
             }));
      return;
    }
    const int64_t each = (layers + first + last) / chunks;
    const auto too_many = [&](const char* key, int64_t less, auto with) {
      if (less <= each) return;
      report(key, fmt::format("a chunk has {} layers to take from", each),
             nearest_that(less, range_of(key), with));
    };
    too_many("parallel.first_stage_less_layers", first,
             [&](int64_t less) { return works(layers, less, last); });
    too_many("parallel.last_stage_less_layers", last,
             [&](int64_t less) { return works(layers, first, less); });
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
        fix <= range_of("train.global_batch").high ? std::optional(fix) : std::nullopt);
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
    const int64_t unit = (run_.parallel.sequence_parallel ? run_.parallel.tp : 1) *
                         (run_.parallel.cp > 1 ? 2 * run_.parallel.cp : 1);
    const int64_t fix = static_cast<int64_t>(most / a_token / sequences) / unit * unit;
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

  const RunFile& run_;
  const std::set<std::string>& bad_;
  std::vector<Problem>& problems_;
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
}

}  // namespace lockstep::config
