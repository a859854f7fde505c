// How fast algorithms go when all groups of an axis use them at once: latencies by hops, and seconds a byte
// from the links that their flows share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/fabric.hpp"
#include "collective/patterns.hpp"
#include "cost/axis_groups.hpp"
#include "cost/protocols.hpp"
#include "parallel/mesh.hpp"

namespace lockstep::cost {

// Means of hops may be fractions.
struct Hops {
  double nvlink = 0;
  double nic = 0;
  double layers = 0;  // switch layers above the first
  bool operator==(const Hops&) const = default;
};

// One group's, or one message's.
struct Pace {
  Hops ways;                    // of all rounds of the algorithm when it has one piece
  Hops piece;                   // of each further piece
  double seconds_per_byte = 0;  // of the op's bytes, in Simple, per `fill` rounds
  int fill = 1;                 // rounds that the first piece of a tree needs; 1 for anything else
  bool operator==(const Pace&) const = default;
};

struct Paces {
  std::vector<Pace> kinds;                          // those that there are, few
  std::shared_ptr<const std::vector<int>> kind_of;  // by rank; null: there is one kind
};

// What moves: an algorithm in all groups of an axis, or with `algorithm` = "message" a message from every
// rank to the one `shift` stages further.
struct Movement {
  model::Axis axis = model::Axis::pp;
  std::string algorithm = "message";
  int shift = 0;
  auto operator<=>(const Movement&) const = default;
};

// Not for use by several threads at once.
class PaceSolver {
 public:
  // `fabric` outlives this.
  PaceSolver(const config::ClusterConfig& cluster, const parallel::Mesh& mesh, const cluster::Fabric& fabric);

  // Of an all-gather or reduce-scatter, which have the same rounds the other way round; "tree" and
  // "halving_doubling" are all-reduces. All other all-reduces are both, one after the other.
  const Paces& paces(const Movement& movement);
  // While the others move too, on each link in the phase of theirs that has most flows there.
  const Paces& paces_beside(const Movement& movement, const std::vector<Movement>& others);

  // Latency of so many hops. `tree`: of a tree's, else of a ring's.
  double latency(const Hops& hops, const Protocol& protocol, bool tree) const;
  const AxisGroups& groups(model::Axis axis);

 private:
  struct Phase {
    std::vector<collective::PatternFlow> flows;  // between members of a group
    int rounds = 1;
    double share = 0;       // of the buffer, that each flow carries in a round
    bool one_each = false;  // a pair of ranks is one flow, whatever it carries
    bool ring = false;
  };
  struct Shape {
    std::vector<Phase> phases;
    int tree_height = 0;
    int ranks_per_node = 1;
  };
  class Tally;

  const Shape& shape(const std::string& algorithm, int ranks, int ranks_per_node);
  const std::vector<const Shape*>& shapes(const Movement& movement);
  template <class Visit>
  void each_flow(const Movement& movement, size_t phase, Visit visit);
  size_t phases(const Movement& movement);
  void count_uses(const Movement& movement, size_t phase);
  const std::vector<int>& most_uses(const Movement& movement);
  void count_all_uses(const Movement& movement, size_t phase, const std::vector<Movement>& others);
  void add_phase(const Movement& movement, size_t phase);
  void add_to_pace(Pace& pace, const Tally& tally, const Shape& shape, const Phase& phase) const;
  double rate(const cluster::Fabric::Path& path) const;
  Paces solve_messages(const Movement& movement, const std::vector<Movement>& others);
  Paces solve(const Movement& movement, const std::vector<Movement>& others);

  double nvlink_latency_, nic_latency_, switch_latency_;
  parallel::Mesh mesh_;
  const cluster::Fabric& fabric_;
  std::map<model::Axis, AxisGroups> groups_;
  std::map<std::tuple<std::string, int, int>, Shape> shapes_;
  std::map<std::pair<model::Axis, std::string>, std::vector<const Shape*>> shapes_of_groups_;
  std::map<Movement, Paces> alone_;
  std::map<std::pair<Movement, std::vector<Movement>>, Paces> beside_;
  std::map<Movement, std::vector<int>> most_uses_;  // by link

  std::vector<int> uses_;    // by link, of the phase that is being solved and all beside it
  std::vector<Pace> paces_;  // by group
};

}  // namespace lockstep::cost
