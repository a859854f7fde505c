// Runs a priced program on the lanes of one pipeline stage. Per rank there is a compute timeline, on which
// kernels and tensor- and context-parallel collectives follow one another; a send stream; and a data-parallel
// stream, for all collectives over dp_cp.
//
// - A pass whose receive was posted waits until the message has arrived; a receive itself takes no time. Then
//   it waits for the latest unshard of its chunk. It ends no earlier than its host has queued all of its ops,
//   which takes as long on every rank (cost::OpPrices::host_seconds).
// - A send starts when its tensor is computed and the rank's send stream is free.
// - An unshard, gradient reduction or parameter gather is queued and goes on beside the computation; it
//   starts when all ranks of its group have queued it and their data-parallel streams are free. Where a
//   program has one reduction at a time, the next one waits for it before it does anything.
// - gather_gradients, sum_tied_gradients and gradient_norm wait for the rank's data-parallel stream; their
//   collectives are waited for one by one.
// - What runs at the same time at a rank may slow each other down (sim/stream_load.hpp).
#pragma once

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sim/critical_path.hpp"
#include "sim/exchange.hpp"
#include "sim/lane_trace.hpp"
#include "sim/lanes.hpp"
#include "sim/priced_program.hpp"
#include "sim/rare_events.hpp"
#include "sim/stream_load.hpp"
#include "sim/tile_groups.hpp"

namespace lockstep::sim {

// What the lanes of a stage are, by lane.
struct StageLanes {
  const LaneGrid* grid = nullptr;
  int kv_copies = 1;                    // neighbouring ranks of tp that hold the same key and value heads
  StageTransfers* transfers = nullptr;  // null: no two transfers share anything
  double communication_slowdown = 0;
  std::vector<double> time_factor;  // of the rank's kernels
  std::vector<uint32_t> key_a, key_b;
  const std::vector<OpKey>* op_keys = nullptr;  // by index in the program; null: nothing is drawn
  const JitterShape* shape = nullptr;           // null: no jitter
  const RareEvents* rare = nullptr;             // null: none
};
StageLanes one_lane(const LaneGrid& grid);

// Seconds by lane.
struct LaneTimes {
  explicit LaneTimes(size_t lanes)
      : clock(lanes),
        data(lanes),
        tp(lanes),
        cp(lanes),
        message(lanes),
        pp_meeting(lanes),
        dp(lanes),
        optimizer(lanes),
        pause(lanes) {}

  std::vector<double> clock;  // compute timeline; at the end: when the rank is done
  // Parts of the time that has passed:
  std::vector<double> data;        // load_batch
  std::vector<double> tp;          // tensor-parallel collectives, waiting included
  std::vector<double> cp;          // context-parallel ones
  std::vector<double> message;     // waiting for pipeline messages
  std::vector<double> pp_meeting;  // collectives over stages, waiting included
  std::vector<double> dp;          // waiting for data-parallel collectives
  std::vector<double> optimizer;   // kernels of gradient_norm and optimizer_step
  std::vector<double> pause;       // of the rank's host
};

enum class PhaseKind : uint8_t { data, forward, backward, optimizer };
inline constexpr int phase_kinds = 4;

struct PhaseTimes {
  double start = std::numeric_limits<double>::infinity();
  double end = -std::numeric_limits<double>::infinity();
  bool any() const { return end >= start; }
  void add(double from, double to);
};

// Neighbouring ops of an action that run on tiles, and what goes on beside them.
struct OpsOnTiles {
  std::vector<StreamLoad::Beside> beside;  // of each op
  bool beside_matters = false;             // whether any op may be slowed
  bool lane_by_lane = false;               // whether transfers may lose packets
};

class StageRun {
 public:
  // All references outlive this. `tracer` and `path` may be null.
  StageRun(const PricedProgram& program, const StageLanes& lanes, Exchange& exchange,
           LaneTracer* tracer = nullptr, PathBook* path = nullptr);

  // Runs until the program ends or has to wait for another stage; returns whether anything was done.
  bool advance();
  bool done() const { return at_ == program_.actions().size(); }
  // After the last action: waits for what is still under way. Throws RunError for a receive without a send.
  void finish();
  std::string where() const;  // "stage 3, backward chunk 0 micro-batch 2"

  const LaneTimes& times() const { return times_; }
  const PhaseTimes& phase(PhaseKind kind) const { return phases_[static_cast<size_t>(kind)]; }
  double pass_seconds() const { return pass_seconds_; }  // of the first lane, in forward and backward

 private:
  bool begin_action(const PricedAction& action);
  bool take_message(const parallel::Action& action);
  bool run_ops(const PricedAction& action);
  void end_action(const PricedAction& action);

  void run_on_tiles(const PricedAction& action, size_t begin, size_t end);
  void run_tile(const Tile& tile, const PricedAction& action, size_t begin, size_t end,
                const OpsOnTiles& ops);
  void run_op(const Tile& tile, const PricedOp& op, OpKey key);
  void run_kernel_beside(const Tile& tile, const PricedOp& op, OpKey key);
  void run_groups(const Tile& tile, const PricedOp& op, OpKey key, const StreamLoad::Beside& beside);
  void run_group(const Tile& tile, const PricedOp& op, OpKey key, const StreamLoad::Beside& beside,
                 const std::vector<size_t>& lanes);
  const OpsOnTiles& prepare(const PricedAction& action, size_t begin, size_t end);
  void run_dp(const PricedAction& action, const PricedOp& op, OpKey key);
  double ready_row(int row, const QueuedCollective* earlier) const;
  bool run_pp(const PricedAction& action, const PricedOp& op, OpKey key);
  void send(const PricedAction& action, const PricedOp& op, OpKey key);
  void wait_for(const QueuedCollective* queued);
  void wait_for_streams(const PricedAction& action);
  void note_queued(const PricedAction& action);
  void note_phase_start(const PricedAction& action);
  void pause(const PricedAction& before);
  void wait_for_host(const PricedAction& pass);
  void trace_pause(size_t lane, double start, const PricedAction& before);

  // What the critical path gets to know; does nothing without one.
  void path_on_tile(const Tile& tile, const PricedOp& op);
  void path_queued(const QueuedCollective* queued, const QueuedCollective* before);
  void path_waited(const QueuedCollective& queued);
  void path_sent(const MessageKey& key, const std::vector<double>& start, const std::vector<double>& sent);
  void path_arrived(const MessageKey& key, const std::vector<double>& arrival);
  void path_met(const Exchange::MeetingKey& place, const Exchange::Meeting& meeting);

  TileLanes view(const Tile& tile);
  OpKey key_of(const PricedAction& action, size_t op) const;
  double factor(size_t lane, OpKey key) const;
  // What the lane's op, alone, takes, or its group's when the lane is the first of it.
  double transfer_seconds(size_t lane, const PricedOp& op, OpKey key) const;
  double retransmit_seconds(size_t lane, const PricedOp& op, OpKey key) const;
  std::vector<double>* bucket(parallel::ActionKind kind);

  const PricedProgram& program_;
  const StageLanes& lanes_;
  Exchange& exchange_;
  LaneTracer* tracer_;
  PathBook* path_;
  std::vector<double> clock_before_;   // of the tile's lanes, for the path
  std::vector<PathState> sent_paths_;  // to the end of each lane's latest message
  LaneTimes times_;
  std::array<PhaseTimes, phase_kinds> phases_;

  size_t at_ = 0;                  // action
  size_t op_ = 0;                  // op in it
  bool begun_ = false;             // the action's waiting is over
  bool entered_ = false;           // the stage stands at a meeting
  std::array<int, 2> meetings_{};  // had so far: of all stages, of the two ends
  StreamLoad load_;
  std::map<int, std::shared_ptr<const QueuedCollective>> unsharded_;  // by chunk, its latest
  std::shared_ptr<const QueuedCollective> reduced_;                   // the latest reduction
  std::map<std::vector<const void*>, OpsOnTiles> prepared_;  // by first op and what it may share with
  std::vector<const void*> prepared_key_;
  TileGroups groups_;
  std::vector<double> rows_until_;               // when what slows kernels ends, by row
  std::array<size_t, phase_kinds> phase_end_{};  // the last action of each phase
  double first_lane_start_ = 0;
  std::vector<double> pass_start_;  // by lane, of a pass that may wait for its host
  double pass_seconds_ = 0;
  std::map<std::tuple<bool, int, int>, const PricedAction*> posted_;  // receives: forward, chunk, micro-batch
};

}  // namespace lockstep::sim
