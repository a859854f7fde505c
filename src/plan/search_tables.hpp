// What a search works out once and uses for many layouts: kernels and bytes of passes, transfers on a mesh,
// and the state of a cut into chunks. All of it comes from the programs and prices that `plan` uses.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cost/op_prices.hpp"
#include "cost/transfer_prices.hpp"
#include "plan/search_shapes.hpp"
#include "plan/stage_costs.hpp"

namespace lockstep::plan {

// What chunks consist of.
enum class Piece : uint8_t { layer, embedding, head };
inline constexpr size_t piece_kinds = 3;
template <class T>
using ByPiece = std::array<T, piece_kinds>;

// Chunks of a cut, by place; a place that the cut does not have has no layers and no pieces.
struct ChunkContents {
  struct Content {
    int layers = 0;
    bool embedding = false, head = false;
  };
  std::array<Content, chunk_places> at;
};

// Passes of one micro-batch, whatever the mesh beyond tp and cp.
class PassTable {
 public:
  // `run`: with the tp, cp, micro-batch, sequence parallel and recompute in question. `prices`: without a
  // host's time of a micro-batch (StateTable has a chunk's share of it).
  PassTable(const config::RunFile& run, const cost::OpPrices& prices);

  struct Pass {
    OpSums ops;
    double host = 0;  // seconds that the host needs to queue them
  };
  struct Passes {
    Pass forward, backward_input, backward_weight;
  };
  const Passes& passes(Piece piece) const { return passes_[static_cast<size_t>(piece)]; }
  const model::ShardShape& shape() const { return shape_; }
  // Bytes, as parallel::LiveActivations and pass_memory count them.
  double live(const ChunkContents::Content& content) const { return sum(live_, content); }
  double stash(const ChunkContents::Content& content) const { return sum(stash_, content); }
  double peak(const ChunkContents::Content& content, Running running) const;

 private:
  // Bytes with no layer, with one, and of each further one; with many layers, if that is more, those on the
  // way to none and of each.
  struct Line {
    double none = 0, one = 0, further = 0;
    double many = 0, each_of_many = 0;
  };
  static double sum(const ByPiece<double>& pieces, const ChunkContents::Content& content) {
    return content.layers * pieces[0] + (content.embedding ? pieces[1] : 0) + (content.head ? pieces[2] : 0);
  }
  void find_peaks(const config::RunFile& run);
  void find_peaks_of_many(const config::RunFile& run);

  model::ShardShape shape_;
  ByPiece<Passes> passes_;
  ByPiece<double> live_{}, stash_{};
  std::array<std::array<Line, running_kinds>, 4> peaks_{};  // by embedding + 2 head
};

// Prices of transfers. Stages of one kind have the same: their groups lie alike on nodes. Where tp x cp and
// nodes divide each other there is one kind.
class MeshPrices {
 public:
  explicit MeshPrices(config::RunFile run);  // `run`: with the mesh in question

  // Neighbouring stages that are alike, in order; the first stage and the last are by themselves.
  struct Run {
    int stage = 0, count = 1;
    ChunkPlace place = ChunkPlace::first;
    size_t kind = 0;
  };
  const std::vector<Run>& runs() const { return runs_; }
  size_t kinds() const { return stage_of_kind_.size(); }

  double seconds(const cost::Transfer& transfer);                          // of the slowest group or rank
  double seconds(const cost::Transfer& transfer, size_t kind);             // of a stage of that kind
  BlockingCost blocking(const OpSums& ops, size_t kind, double host = 0);  // over tp and cp
  cost::TransferPrices& prices() { return prices_; }
  const parallel::Mesh& mesh() const { return mesh_; }

 private:
  // Which of a transfer's prices the stages have.
  using KindsOfStages = std::vector<std::vector<int>>;
  const KindsOfStages& kinds_of_stages(const cost::RankSeconds& seconds);
  void find_kinds();

  parallel::Mesh mesh_;
  cost::TransferPrices prices_;
  std::map<std::shared_ptr<const std::vector<int>>, KindsOfStages> by_kind_of_;
  std::vector<int> stage_of_kind_;  // one of them
  std::vector<Run> runs_;
};

// State of the chunks of one cut on one mesh: bytes, and what the step's end costs.
struct StateTable {
  // `layout`: with the cut, mesh, zero and sequence parallel in question.
  StateTable(const parallel::Layout& layout, const cost::OpPrices& prices, MeshPrices& mesh);

  ChunkContents contents;
  // By kind of stage and place: what is no pass; of passes the host's time a micro-batch.
  std::vector<std::array<ChunkCost, chunk_places>> chunks;
  ByPlace weights{}, gradients{};  // bytes of whole chunks
  ByPlace shards{}, own{};         // of this rank's weights; of master weights and moments
  ByPlace reduced{};               // of reduced gradients that do not lie where backwards add to
  ByPlace packed{}, norms{};       // bytes of key and value gradients in one message; of norms' that wait
  std::vector<double> norm;        // seconds, by run of stages
  double norm_pp = 0;

 private:
  struct Sample;  // a chunk at a place
  void add_costs(const parallel::Layout& layout, const cost::OpPrices& prices, MeshPrices& mesh,
                 const Sample& sample);
  void add_bytes(const parallel::Layout& layout, const Sample& sample);
  void add_norms(const parallel::Layout& layout, const cost::OpPrices& prices, MeshPrices& mesh);
};

}  // namespace lockstep::plan
