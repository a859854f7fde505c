// Rules of the mesh, the pipeline and what memory holds.
#include <fmt/format.h>

#include "config/rule_set.hpp"

namespace lockstep::config {
namespace {

class ParallelRules : RuleSet {
 public:
  using RuleSet::RuleSet;

  void check_all() {
    check_tensor_parallel();
    check_sequence();
    check_positions();
    check_world();
    check_replicas();
    check_schedule();
    check_memory_choices();
    check_chunks();
  }

 private:
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

  void check_sequence() {
    if (!good({"train.sequence", "parallel.tp", "parallel.cp", "parallel.sequence_parallel"})) return;
    const int64_t tp = run_.parallel.tp, cp = run_.parallel.cp, sequence = run_.train.sequence;
    const int64_t unit = sequence_unit();
    if (sequence % unit == 0) return;
    const std::string rule =
        cp > 1 ? fmt::format("must be a multiple of 2 x parallel.cp x parallel.tp = 2 x {} x {} = {}", cp, tp,
                             unit)
               : fmt::format("must be a multiple of parallel.tp = {}", tp);
    report("train.sequence", rule, nearest_multiple(sequence, unit, range_of("train.sequence")));
  }

  void check_world() {
    const ParallelConfig& p = run_.parallel;
    const int64_t gpus = run_.cluster.gpus, most = run_.cluster.max_gpus;
    const bool mesh_good = good({"parallel.tp", "parallel.cp", "parallel.pp", "parallel.dp"});
    const bool limited = good({"cluster.max_gpus"}) && most > 0;
    if (good({"cluster.gpus"}) && limited && gpus > most) report_too_many_gpus(mesh_good);
    if (!mesh_good || !good({"cluster.gpus"})) return;
    const int64_t world = p.world_size();
    if (gpus == world) return;
    const int64_t replica = p.tp * p.cp * p.pp;
    std::string rule =
        fmt::format("must be tp x cp x pp x dp = {} x {} x {} x {} = {}", p.tp, p.cp, p.pp, p.dp, world);
    const int64_t highest = limited ? most : range_of("cluster.gpus").high;
    const bool by_replicas =
        gpus <= highest && gpus % replica == 0 && gpus / replica <= range_of("parallel.dp").high;
    if (world <= highest) {
      if (by_replicas) rule += fmt::format(" (or parallel.dp = {})", gpus / replica);
      report("cluster.gpus", rule, world);
    } else if (by_replicas) {
      report_other("cluster.gpus", rule, "parallel.dp", gpus / replica);
    } else {
      report("cluster.gpus", rule);
    }
  }

  // Fewer GPUs alone would break tp x cp x pp x dp.
  void report_too_many_gpus(bool mesh_good) {
    const int64_t gpus = run_.cluster.gpus, most = run_.cluster.max_gpus;
    const std::string rule = fmt::format("the cluster has {} GPUs (cluster.max_gpus)", most);
    const int64_t world = run_.parallel.world_size();
    if (!mesh_good) {
      report("cluster.gpus", rule);
    } else if (world <= most) {
      report("cluster.gpus", rule, world);
    } else if (world == gpus) {
      report_other("cluster.gpus",
                   fmt::format("{}, fewer than tp x cp x pp x dp = {} (a smaller parallel.dp needs fewer)",
                               rule, world),
                   "cluster.max_gpus", gpus);
    } else {
      report("cluster.gpus", rule);
    }
  }

  void check_replicas() {
    if (!good({"parallel.dp", "parallel.replicas"})) return;
    const ParallelConfig& p = run_.parallel;
    if (p.dp <= p.logical_replicas()) return;
    report("parallel.replicas", fmt::format("must be at least parallel.dp = {}", p.dp), p.dp);
  }

  void check_schedule() {
    if (!good({"parallel.schedule", "parallel.pp", "parallel.virtual_stages"})) return;
    const ParallelConfig& p = run_.parallel;
    if (p.schedule != ScheduleKind::interleaved && p.virtual_stages > 1) {
      report("parallel.virtual_stages",
             "more than one chunk a rank needs parallel.schedule = \"interleaved\"", 1);
    }
  }

  void check_memory_choices() {
    const ParallelConfig& p = run_.parallel;
    if (good({"parallel.zero", "parallel.gradient_scatter"}) &&
        p.gradient_scatter == GradientScatter::micro_batch && p.zero < 2) {
      report_word("parallel.gradient_scatter", fmt::format("needs parallel.zero = 2 or 3, not {}", p.zero),
                  to_string(GradientScatter::chunk));
    }
    if (good({"parallel.zero"}) && !p.reshard_after_forward && p.zero < 3) {
      report_boolean("parallel.reshard_after_forward", fmt::format("needs parallel.zero = 3, not {}", p.zero),
                     true);
    }
    if (good({"parallel.zero", "parallel.replicas", "parallel.dp", "software.overlap_gradients"}) &&
        !run_.software.overlap_gradients && (p.zero > 1 || p.logical_replicas() > p.dp)) {
      report_boolean("software.overlap_gradients",
                     "reductions after the last backward need every chunk's gradients until then: "
                     "parallel.zero = 0 or 1, and no more replicas than dp",
                     true);
    }
    check_recompute();
  }

  void check_recompute() {
    const ParallelConfig& p = run_.parallel;
    if (!good({"parallel.recompute", "parallel.recompute_every", "parallel.gathered_input"})) return;
    if (good({"parallel.tp"}) && p.gathered_input == GatheredInput::keep &&
        (p.tp == 1 || !p.sequence_parallel)) {
      report_word("parallel.gathered_input",
                  "needs sequence_parallel and parallel.tp above 1: else nothing is gathered",
                  to_string(GatheredInput::gather_again));
    }
    if (p.recompute_every > 1 && p.recompute.empty()) {
      report("parallel.recompute_every", "needs parallel.recompute to say what is computed again", 1);
    }
    const auto recomputes = [&](const char* op) {
      return std::find(p.recompute.begin(), p.recompute.end(), op) != p.recompute.end();
    };
    const bool gpt = run_.model.architecture == Architecture::gpt;
    if (recomputes(gpt ? "swiglu" : "gelu")) {
      report("parallel.recompute", gpt ? "a gpt model has no \"swiglu\" but \"gelu\""
                                       : "a llama model has no \"gelu\" but \"swiglu\"");
    }
    if (gpt && recomputes("second_products")) {
      report("parallel.recompute", "\"second_products\" is known of llama models alone");
    }
    if (recomputes("norm") && p.gathered_input == GatheredInput::keep) {
      report_word("parallel.gathered_input", "a norm that is computed again has no output to keep",
                  to_string(GatheredInput::gather_again));
    }
  }

  void check_positions() {
    if (!good({"model.positions", "train.sequence"}) || run_.model.architecture != Architecture::gpt) return;
    if (run_.model.positions >= run_.train.sequence) return;
    report("model.positions", fmt::format("must be at least train.sequence = {}", run_.train.sequence),
           run_.train.sequence);
  }

  void check_chunks() {
    if (!good({"model.layers", "parallel.pp", "parallel.virtual_stages", "parallel.first_stage_less_layers",
               "parallel.last_stage_less_layers", "parallel.layer_split"})) {
      return;
    }
    if (run_.parallel.layer_split == LayerSplit::cost) {
      check_cost_split();
    } else {
      check_even_split();
    }
  }

  void check_cost_split() {
    const auto refuse = [&](const char* key, int64_t less) {
      if (less > 0) report(key, "parallel.layer_split = \"cost\" finds the layers of every chunk itself", 0);
    };
    refuse("parallel.first_stage_less_layers", run_.parallel.first_stage_less_layers);
    refuse("parallel.last_stage_less_layers", run_.parallel.last_stage_less_layers);
  }

  // Layers are dealt evenly to pp x virtual_stages chunks, as if the first and the last had some more than
  // they have: layers + first_stage_less_layers + last_stage_less_layers must divide.
  bool deals(int64_t layers, int64_t less_first, int64_t less_last) const {
    const int64_t dealt = layers + less_first + less_last;
    return dealt % chunks() == 0 && std::max(less_first, less_last) <= dealt / chunks();
  }

  void check_even_split() {
    const int64_t layers = run_.model.layers;
    const int64_t first = run_.parallel.first_stage_less_layers, last = run_.parallel.last_stage_less_layers;
    if ((layers + first + last) % chunks() != 0) return report_uneven();
    const int64_t each = (layers + first + last) / chunks();
    const auto too_many = [&](const char* key, int64_t less, auto with) {
      if (less <= each) return;
      report(key, fmt::format("a chunk has {} layers to take from", each),
             nearest_that(less, range_of(key), with));
    };
    too_many("parallel.first_stage_less_layers", first,
             [&](int64_t less) { return deals(layers, less, last); });
    too_many("parallel.last_stage_less_layers", last,
             [&](int64_t less) { return deals(layers, first, less); });
  }

  void report_uneven() {
    const int64_t layers = run_.model.layers;
    const int64_t first = run_.parallel.first_stage_less_layers, last = run_.parallel.last_stage_less_layers;
    std::string rule = fmt::format(
        "model.layers + first_stage_less_layers + last_stage_less_layers = {} + {} + {} must be a multiple "
        "of pp x virtual_stages = {} x {} = {}",
        layers, first, last, run_.parallel.pp, run_.parallel.virtual_stages, chunks());
    const int64_t lacking = (chunks() - layers % chunks()) % chunks();
    if (deals(layers, lacking - lacking / 2, lacking / 2)) {
      rule += fmt::format(" (or first_stage_less_layers = {} and last_stage_less_layers = {})",
                          lacking - lacking / 2, lacking / 2);
    }
    rule += ", or layer_split = \"cost\"";
    report("model.layers", rule, nearest_that(layers, range_of("model.layers"), [&](int64_t other) {
             return deals(other, first, last);
           }));
  }

  int64_t chunks() const { return run_.parallel.pp * run_.parallel.virtual_stages; }
};

}  // namespace

void check_parallel_rules(const RunFile& run, const std::set<std::string>& bad,
                          std::vector<Problem>& problems) {
  ParallelRules(run, bad, problems).check_all();
}

}  // namespace lockstep::config
