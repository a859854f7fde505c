#include "plan/search.hpp"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "base/units.hpp"
#include "plan/search_evaluator.hpp"
#include "plan/search_space.hpp"

namespace lockstep::plan {

class LayoutSearch::Engine {
 public:
  Engine(const config::RunFile& run, std::vector<int64_t> batches, std::set<std::string> held)
      : space_(run, std::move(batches), std::move(held)),
        shapes_(run.software.overlap_gradients, run.parallel.gradient_scatter) {}

  const SearchSpace& space() const { return space_; }

  void run_over(int64_t gpus, Visitor& visitor) {
    if (gpus != gpus_) {
      // Cores that workers share make kernels slower: the tables are of this number.
      passes_.clear();
      gpus_ = gpus;
    }
    const std::vector<SearchSpace::Mesh> meshes = space_.meshes(gpus);
    size_t done = 0;
    for (const SearchSpace::Mesh& one : meshes) {
      if (one.problem.empty()) mesh(one.layout, visitor);
      visitor.went_through(++done, meshes.size());
    }
  }

 private:
  using PassKey = std::tuple<int64_t, int64_t, int64_t, bool, size_t>;

  const PassTable& passes(const SearchLayout& l) {
    const PassKey key{l.tp, l.cp, l.micro_batch, l.sequence_parallel, l.recompute};
    auto& table = passes_[key];
    if (table == nullptr) {
      config::RunFile run = space_.run_of(l);
      run.software.host_seconds_per_micro_batch = 0;  // a chunk's, not a piece's
      table = std::make_unique<PassTable>(run, cost::OpPrices(run));
    }
    return *table;
  }

  void mesh(SearchLayout l, Visitor& visitor) {
    std::unique_ptr<MeshPrices> prices;
    for (const int64_t chunks : space_.virtual_stages(l)) {
      l.virtual_stages = chunks;
      if (!space_.deal_layers(l)) continue;
      const auto schedules = space_.schedules(l);
      if (schedules.empty()) continue;
      l.schedule = schedules.front();
      for (const int64_t micro_batch : space_.micro_batches(l)) {
        l.micro_batch = micro_batch;
        if (prices == nullptr) prices = std::make_unique<MeshPrices>(space_.run_of(l));
        micro_batch_of(l, *prices, visitor);
      }
      states_.clear();
    }
    priced_.clear();
  }

  // Of a cut, by sequence parallel and whether state is sharded.
  const StateTable& state(SearchLayout l, MeshPrices& mesh) {
    l.recompute = 0;
    auto& table = states_[{l.sequence_parallel, l.zero}];
    if (table == nullptr) {
      const config::RunFile run = space_.run_of(l);
      table = std::make_unique<StateTable>(parallel::Layout(run), cost::OpPrices(run), mesh);
    }
    return *table;
  }

  // What passes and reductions cost one another is of the mesh's first cut: it hardly depends on their bytes.
  const PricedPasses& priced(const SearchLayout& l, MeshPrices& mesh, double dp_bytes) {
    auto& table = priced_[{l.micro_batch, l.sequence_parallel, l.recompute}];
    if (table == nullptr) {
      table = std::make_unique<PricedPasses>(space_.base(), passes(l), mesh, static_cast<int64_t>(dp_bytes));
    }
    return *table;
  }

  void micro_batch_of(SearchLayout l, MeshPrices& mesh, Visitor& visitor) {
    std::vector<Variant> variants;
    std::vector<std::pair<bool, size_t>> choices;
    for (const bool sequence_parallel : space_.sequence_parallel(l)) {
      l.sequence_parallel = sequence_parallel;
      for (const size_t recompute : space_.recompute()) {
        l.recompute = recompute;
        l.zero = 0;
        const StateTable& whole = state(l, mesh);
        l.zero = 1;
        const StateTable& sharded = state(l, mesh);
        variants.emplace_back(priced(l, mesh, whole.gradients[0]), whole, sharded);
        choices.push_back({l.sequence_parallel, l.recompute});
      }
    }
    const cost::OpPrices op_prices(space_.run_of(l));
    const std::vector<int64_t>& batches = space_.batches();
    for (l.batch = 0; l.batch < batches.size(); ++l.batch) {
      if (!space_.divides(l, l.batch)) continue;
      l.micro_batches = batches[l.batch] / (l.dp * l.micro_batch);
      if (!space_.small_enough(l)) {
        const size_t each = space_.schedules(l).size() * space_.zeros(l).size();
        visitor.left_out(static_cast<int64_t>(each * variants.size()));
        continue;
      }
      const BatchTimes batch(space_.base(), op_prices, variants.front().shape(), static_cast<int>(l.pp),
                             static_cast<int>(l.micro_batches));
      each_schedule(l, batch, variants, choices, visitor);
    }
  }

  void each_schedule(SearchLayout l, const BatchTimes& batch, const std::vector<Variant>& variants,
                     const std::vector<std::pair<bool, size_t>>& choices, Visitor& visitor) {
    const config::ParallelConfig& p = space_.base().parallel;
    const bool each_micro_batch = p.gradient_scatter == config::GradientScatter::micro_batch;
    seconds_.resize(variants.size());
    peaks_.resize(variants.size());
    for (const config::ScheduleKind schedule : space_.schedules(l)) {
      l.schedule = schedule;
      PipelineChoice pipeline{schedule, static_cast<int>(l.pp), static_cast<int>(l.virtual_stages),
                              static_cast<int>(l.micro_batches)};
      pipeline.reshards = p.reshard_after_forward;
      const PipelineShapes::ByZero& by_zero =
          shapes_.of({schedule, pipeline.stages, pipeline.chunks, pipeline.micro_batches, pipeline.reshards});
      // What does not change from one zero to the next is not computed again.
      bool seconds_known = false, peaks_known = false;
      for (const int64_t zero : space_.zeros(l)) {
        l.zero = zero;
        pipeline.zero = static_cast<int>(zero);
        pipeline.scatters_every_micro_batch = each_micro_batch && zero > 1;
        const PipelineMoments& moments = by_zero.of[static_cast<size_t>(zero)];
        seconds_known = seconds_known && zero == 2 && !each_micro_batch;
        peaks_known = peaks_known && (zero == 1 || (zero == 2 && by_zero.two_holds_as_one));
        for (size_t v = 0; v < variants.size(); ++v) {
          std::tie(l.sequence_parallel, l.recompute) = choices[v];
          if (!seconds_known) seconds_[v] = variants[v].seconds(pipeline, moments, batch, scratch_);
          if (!peaks_known) peaks_[v] = variants[v].peaks(pipeline, moments);
          visitor.take(l, {seconds_[v], variants[v].bytes(pipeline, peaks_[v])});
        }
        seconds_known = peaks_known = true;
      }
    }
  }

  SearchSpace space_;
  int64_t gpus_ = 0;
  PipelineShapes shapes_;
  Variant::Scratch scratch_;
  std::vector<double> seconds_;  // of the variants in question
  std::vector<std::array<double, chunk_places>> peaks_;
  std::map<PassKey, std::unique_ptr<PassTable>> passes_;
  // Of the mesh, and of its cut, in question.
  std::map<std::tuple<int64_t, bool, size_t>, std::unique_ptr<PricedPasses>> priced_;
  std::map<std::pair<bool, int64_t>, std::unique_ptr<StateTable>> states_;
};

LayoutSearch::LayoutSearch(const config::RunFile& run, std::vector<int64_t> batches,
                           std::set<std::string> held)
    : engine_(std::make_unique<Engine>(run, std::move(batches), std::move(held))) {}
LayoutSearch::~LayoutSearch() = default;

void LayoutSearch::run_over(int64_t gpus, Visitor& visitor) { engine_->run_over(gpus, visitor); }

std::string LayoutSearch::why_none(int64_t gpus, int64_t tp, int64_t cp, int64_t pp, int64_t zero) const {
  return engine_->space().mesh(gpus, tp, cp, pp, zero).problem;
}

std::string LayoutSearch::why_none(int64_t gpus, size_t lines) const {
  const std::string too_many =
      fmt::format("more than {} passes a step", format_thousands(most_searched_passes));
  std::string text;
  for (const SearchSpace::Mesh& mesh : engine_->space().meshes(gpus)) {
    if (lines-- == 0) return text + "\n  ...";
    const SearchLayout& l = mesh.layout;
    text += fmt::format("\n  tp {} cp {} pp {}: {}", l.tp, l.cp, l.pp,
                        mesh.problem.empty() ? too_many : mesh.problem);
  }
  return text;
}

const std::vector<std::vector<std::string>>& LayoutSearch::recompute_choices() const {
  return engine_->space().recompute_choices();
}
config::RunFile LayoutSearch::run_of(const SearchLayout& layout) const {
  return engine_->space().run_of(layout);
}

}  // namespace lockstep::plan
