#include "plan/search.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/hidden_collectives.hpp"
#include "plan/memory.hpp"
#include "plan/search_evaluator.hpp"

namespace lockstep::plan {

namespace {

using config::ScheduleKind;

constexpr int64_t most_context_parallel = 16, most_chunks = 16, most_less = 2;
constexpr std::array<int64_t, 4> micro_batch_sizes = {1, 2, 4, 8};
constexpr int64_t most_passes = 1 << 22;  // as config's rules

bool tensor_parallel_fits(const config::ModelConfig& m, int64_t tp) {
  return m.heads % tp == 0 && m.ffn % tp == 0 && (m.kv_heads % tp == 0 || tp % m.kv_heads == 0);
}

}  // namespace

class LayoutSearch::Engine {
 public:
  Engine(const config::RunFile& run, std::vector<int64_t> batches)
      : base_(run), batches_(std::move(batches)), recompute_{{}, {"attention"}, {"full"}} {
    base_.simulate.slow_links.clear();
    base_.train.batch_ramp.clear();
    base_.origin = {};
    config::ParallelConfig& p = base_.parallel;
    own_micro_batch_ = p.micro_batch;
    if (std::find(recompute_.begin(), recompute_.end(), p.recompute) == recompute_.end()) {
      recompute_.push_back(p.recompute);
    }
    p.replicas = 0;
    p.recompute_every = 1;
    p.layer_split = config::LayerSplit::even;
    p.gradient_scatter = config::GradientScatter::chunk;
  }

  const std::vector<std::vector<std::string>>& recompute_choices() const { return recompute_; }

  config::RunFile run_of(const SearchLayout& l) const {
    config::RunFile run = base_;
    config::ParallelConfig& p = run.parallel;
    p.tp = l.tp;
    p.cp = l.cp;
    p.pp = l.pp;
    p.dp = l.dp;
    p.virtual_stages = l.virtual_stages;
    p.first_stage_less_layers = l.first_less;
    p.last_stage_less_layers = l.last_less;
    p.micro_batch = l.micro_batch;
    p.schedule = l.schedule;
    p.zero = l.zero;
    p.sequence_parallel = l.sequence_parallel;
    p.recompute = recompute_[l.recompute];
    const bool norm_again = std::find(p.recompute.begin(), p.recompute.end(), "norm") != p.recompute.end();
    if (norm_again || l.tp == 1 || !l.sequence_parallel) {
      p.gathered_input = config::GatheredInput::gather_again;
    }
    if (l.zero < 3) p.reshard_after_forward = true;
    run.train.global_batch = batches_[l.batch];
    run.cluster.gpus = p.world_size();
    return run;
  }

  void run_over(int64_t gpus, Visitor& visitor) {
    if (gpus != gpus_) {
      // Cores that workers share make kernels slower: the tables are of this number.
      passes_.clear();
      gpus_ = gpus;
    }
    SearchLayout layout;
    for (layout.tp = 1; layout.tp <= std::min(base_.cluster.gpus_per_node, gpus); layout.tp *= 2) {
      if (!tensor_parallel_fits(base_.model, layout.tp)) continue;
      for (layout.cp = 1; layout.cp <= most_context_parallel; layout.cp *= 2) {
        const int64_t unit = (layout.cp > 1 ? 2 * layout.cp : 1) * layout.tp;
        if (base_.train.sequence % unit != 0 || gpus % (layout.tp * layout.cp) != 0) continue;
        const int64_t most_stages =
            std::min(base_.model.layers + 2 * most_less, gpus / (layout.tp * layout.cp));
        for (layout.pp = 1; layout.pp <= most_stages; ++layout.pp) {
          if (gpus % (layout.tp * layout.cp * layout.pp) != 0) continue;
          layout.dp = gpus / (layout.tp * layout.cp * layout.pp);
          mesh(layout, visitor);
        }
      }
    }
  }

 private:
  using PassKey = std::tuple<int64_t, int64_t, int64_t, bool, size_t>;

  // Cuts of the layers: as many to each chunk, but for a few at the ends.
  bool cut(SearchLayout& l) const {
    const int64_t chunks = l.pp * l.virtual_stages, layers = base_.model.layers;
    const int64_t lacking = (chunks - layers % chunks) % chunks;
    l.first_less = lacking - lacking / 2;
    l.last_less = lacking / 2;
    return lacking <= most_less && (layers + lacking) / chunks >= std::max<int64_t>(l.first_less, 1) &&
           (chunks > 1 || lacking == 0);
  }

  std::vector<int64_t> micro_batches() const {
    std::vector<int64_t> out(micro_batch_sizes.begin(), micro_batch_sizes.end());
    if (std::find(out.begin(), out.end(), own_micro_batch_) == out.end()) out.push_back(own_micro_batch_);
    return out;
  }
  bool any_batch(const SearchLayout& l) const {
    return std::any_of(batches_.begin(), batches_.end(),
                       [&](int64_t batch) { return batch % (l.dp * l.micro_batch) == 0; });
  }

  const PassTable& passes(const SearchLayout& l) {
    const PassKey key{l.tp, l.cp, l.micro_batch, l.sequence_parallel, l.recompute};
    auto& table = passes_[key];
    if (table == nullptr) {
      const config::RunFile run = run_of(l);
      table = std::make_unique<PassTable>(run, cost::OpPrices(run));
    }
    return *table;
  }

  void mesh(SearchLayout l, Visitor& visitor) {
    std::unique_ptr<MeshPrices> prices;
    for (l.virtual_stages = 1; l.virtual_stages <= most_chunks; ++l.virtual_stages) {
      if (!cut(l)) continue;
      if (l.pp == 1 && l.virtual_stages > 1 && base_.model.tie_embeddings) continue;
      l.schedule = l.virtual_stages > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
      for (const int64_t micro_batch : micro_batches()) {
        l.micro_batch = micro_batch;
        if (!any_batch(l)) continue;
        if (prices == nullptr) prices = std::make_unique<MeshPrices>(run_of(l));
        micro_batch_of(l, *prices, visitor);
      }
      states_.clear();
    }
    priced_.clear();
  }

  // Of a cut, by sequence parallel and whether state is sharded.
  const StateTable& state(SearchLayout l, MeshPrices& mesh) {
    l.zero = std::min<int64_t>(l.zero, 1);
    l.recompute = 0;
    auto& table = states_[{l.sequence_parallel, l.zero}];
    if (table == nullptr) {
      const config::RunFile run = run_of(l);
      table = std::make_unique<StateTable>(parallel::Layout(run), cost::OpPrices(run), mesh);
    }
    return *table;
  }

  const PricedPasses& priced(const SearchLayout& l, MeshPrices& mesh, double dp_bytes) {
    auto& table = priced_[{l.micro_batch, l.sequence_parallel, l.recompute}];
    if (table == nullptr) {
      table = std::make_unique<PricedPasses>(base_, passes(l), mesh, static_cast<int64_t>(dp_bytes));
    }
    return *table;
  }

  void micro_batch_of(SearchLayout l, MeshPrices& mesh, Visitor& visitor) {
    std::vector<Variant> variants;
    std::vector<std::pair<bool, size_t>> choices;
    for (const bool sequence_parallel : {true, false}) {
      if (!sequence_parallel && l.tp == 1) continue;
      l.sequence_parallel = sequence_parallel;
      for (l.recompute = 0; l.recompute < recompute_.size(); ++l.recompute) {
        l.zero = 0;
        const StateTable& whole = state(l, mesh);
        l.zero = 1;
        const StateTable& sharded = state(l, mesh);
        variants.emplace_back(priced(l, mesh, whole.gradients[0]), whole, sharded);
        choices.push_back({l.sequence_parallel, l.recompute});
      }
    }
    l.recompute = 0;
    const cost::OpPrices op_prices(run_of(l));
    for (l.batch = 0; l.batch < batches_.size(); ++l.batch) {
      if (batches_[l.batch] % (l.dp * l.micro_batch) != 0) continue;
      l.micro_batches = batches_[l.batch] / (l.dp * l.micro_batch);
      if (l.pp * l.virtual_stages * l.micro_batches > most_passes) continue;
      const BatchTimes batch(base_, op_prices, variants.front().shape(), static_cast<int>(l.pp),
                             static_cast<int>(l.micro_batches));
      each_schedule(l, batch, variants, choices, visitor);
    }
  }

  void each_schedule(SearchLayout l, const BatchTimes& batch, const std::vector<Variant>& variants,
                     const std::vector<std::pair<bool, size_t>>& choices, Visitor& visitor) {
    constexpr std::array one_chunk = {ScheduleKind::one_f_one_b, ScheduleKind::gpipe,
                                      ScheduleKind::zero_bubble_h1};
    constexpr std::array several = {ScheduleKind::interleaved};
    std::span<const ScheduleKind> schedules = one_chunk;
    if (l.virtual_stages > 1) schedules = several;
    if (l.pp == 1 && l.virtual_stages == 1) schedules = schedules.first(1);
    const bool shards = l.dp * l.cp > 1;
    seconds_.resize(variants.size());
    peaks_.resize(variants.size());
    for (const ScheduleKind schedule : schedules) {
      l.schedule = schedule;
      const bool reshards = base_.parallel.reshard_after_forward;
      const PipelineShapes::ByZero& by_zero =
          shapes_.of({schedule, static_cast<int>(l.pp), static_cast<int>(l.virtual_stages),
                      static_cast<int>(l.micro_batches), reshards});
      for (l.zero = 0; l.zero <= (shards ? 3 : 0); ++l.zero) {
        const PipelineMoments& moments = by_zero[static_cast<size_t>(l.zero)];
        const PipelineChoice pipeline{schedule,
                                      static_cast<int>(l.pp),
                                      static_cast<int>(l.virtual_stages),
                                      static_cast<int>(l.micro_batches),
                                      static_cast<int>(l.zero),
                                      reshards};
        for (size_t v = 0; v < variants.size(); ++v) {
          std::tie(l.sequence_parallel, l.recompute) = choices[v];
          // What does not change from one zero to the next is not computed again.
          if (l.zero != 2) seconds_[v] = variants[v].seconds(pipeline, moments, batch);
          if (l.zero != 1) peaks_[v] = variants[v].peaks(pipeline, moments);
          visitor.take(l, {seconds_[v], variants[v].bytes(pipeline, peaks_[v])});
        }
      }
    }
  }

  config::RunFile base_;
  std::vector<int64_t> batches_;
  std::vector<std::vector<std::string>> recompute_;
  int64_t own_micro_batch_ = 1, gpus_ = 0;
  PipelineShapes shapes_;
  std::vector<double> seconds_;  // of the variants in question
  std::vector<std::array<double, chunk_places>> peaks_;
  std::map<PassKey, std::unique_ptr<PassTable>> passes_;
  // Of the mesh, and of its cut, in question.
  std::map<std::tuple<int64_t, bool, size_t>, std::unique_ptr<PricedPasses>> priced_;
  std::map<std::pair<bool, int64_t>, std::unique_ptr<StateTable>> states_;
};

LayoutSearch::LayoutSearch(const config::RunFile& run, std::vector<int64_t> batches)
    : engine_(std::make_unique<Engine>(run, std::move(batches))) {}
LayoutSearch::~LayoutSearch() = default;

void LayoutSearch::run_over(int64_t gpus, Visitor& visitor) { engine_->run_over(gpus, visitor); }
const std::vector<std::vector<std::string>>& LayoutSearch::recompute_choices() const {
  return engine_->recompute_choices();
}
config::RunFile LayoutSearch::run_of(const SearchLayout& layout) const { return engine_->run_of(layout); }

}  // namespace lockstep::plan
