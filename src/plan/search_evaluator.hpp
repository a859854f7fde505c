// Evaluates one layout of a search in memory and time, from tables.
#pragma once

#include <vector>

#include "plan/hidden_collectives.hpp"
#include "plan/search.hpp"
#include "plan/search_tables.hpp"

namespace lockstep::plan {

// Passes of a micro-batch on one mesh.
struct PricedPasses {
  // `dp_bytes`: of gradients that are reduced beside them.
  PricedPasses(const config::RunFile& run, const PassTable& passes, MeshPrices& mesh, int64_t dp_bytes);

  struct Pass {
    BlockingCost forward, backward_input, backward_weight;
  };
  const PassTable& table;
  std::vector<ByPiece<Pass>> pieces;  // by kind of stage
  std::vector<MeshPrices::Run> runs;
  int stages = 1;
  double message = 0;  // seconds of a hidden state to the next stage
  double message_bytes = 0;
  double table_bytes = 0;           // beside the documents' places; stand-ins too
  double table_bytes_of_batch = 0;  // of each micro-batch
  double memory_margin = 0;         // share of all else
  Contention contention;
  bool overlaps_gradients = true, overlaps_parameters = false;
  bool reduces_in_place = false;  // zero = 1
};

// What loading a batch of so many micro-batches takes.
struct BatchTimes {
  BatchTimes(const config::RunFile& run, const cost::OpPrices& prices, const model::ShardShape& shape,
             int stages, int micro_batches);
  double first = 0, middle = 0, last = 0;  // seconds of the stages
  double read = 0;                         // of the longest read beside the step; 0: none
};

struct PipelineChoice {
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int stages = 1, chunks = 1, micro_batches = 1;
  int zero = 1;
  bool reshards = true;
  bool scatters_every_micro_batch = false;
};

// A cut with its passes: everything but schedule, batch and zero.
class Variant {
 public:
  // Of one evaluation; kept from one to the next for its memory.
  struct Scratch {
    std::vector<ChunkTimes> chunks;
    std::vector<StageTimes> stages;
  };

  Variant(const PricedPasses& passes, const StateTable& whole, const StateTable& sharded);

  const model::ShardShape& shape() const { return passes_->table.shape(); }
  // Of a step. With zero = 1 and 2 the same, but where every micro-batch is scattered.
  double seconds(const PipelineChoice& pipeline, const PipelineMoments& moments, const BatchTimes& batch,
                 Scratch& scratch) const;
  // Bytes that come and go, of the first, a middle and the last stage when each holds most. With zero = 0 and
  // 1 the same.
  std::array<double, chunk_places> peaks(const PipelineChoice& pipeline,
                                         const PipelineMoments& moments) const;
  // Of the fullest stage with these.
  double bytes(const PipelineChoice& pipeline, const std::array<double, chunk_places>& peaks) const;

 private:
  double peak(const StageMoments& stage) const;
  struct Costs;
  void cost_chunk(Costs& of, size_t kind, size_t place) const;
  size_t add_stage(const PipelineChoice& pipeline, const MeshPrices::Run& run, const StageMoments& moments,
                   ChunkTimes* times) const;

  const PricedPasses* passes_;
  std::array<const StateTable*, 2> state_;  // whole, sharded
  // Of the chunks of one kind of stage, by whether state is sharded.
  struct Costs {
    std::array<std::array<ChunkCost, chunk_places>, 2> chunks;
    // Of one chunk, where nothing is gathered or scattered meanwhile; by whether backwards run in halves.
    std::array<std::array<std::array<ChunkTimes, chunk_places>, 2>, 2> times;
  };
  std::vector<Costs> costs_;  // by kind of stage
  HeldCounts held_bytes_{};   // of one each
  std::array<std::array<double, running_kinds>, chunk_places> peaks_{};
};

}  // namespace lockstep::plan
