// What pipeline positions hold at their fullest moments, counted in tensors instead of bytes: it depends on
// the shape of the pipeline alone, so that a search walks each shape once and then only multiplies.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "parallel/program.hpp"

namespace lockstep::plan {

// Chunks that differ: the model's first, its last, and all between, which are alike. A model in one chunk is
// `first`.
enum class ChunkPlace : uint8_t { first, middle, last };
inline constexpr size_t chunk_places = 3;
using ByPlace = std::array<double, chunk_places>;

// What runs at the moment.
enum class Running : uint8_t { forward, backward, backward_input, backward_weight, reduction };
inline constexpr size_t running_kinds = 5;

// What is held, in the order of its counts: of the chunks at each place micro-batches' activations, stashes
// between the halves of a backward, buffers of unreduced gradients, gathered parameters (zero = 3), norms'
// gradients that wait between the halves; and messages, hidden states and their gradients.
enum class Held : uint8_t { live, stashed, gradients, gathered, norms };
inline constexpr size_t held_counts = 16;
using HeldCounts = std::array<double, held_counts>;
constexpr size_t held_at(Held what, ChunkPlace place) {
  return chunk_places * static_cast<size_t>(what) + static_cast<size_t>(place);
}
inline constexpr size_t held_messages = held_counts - 1;

struct Moment {
  Running running = Running::forward;
  ChunkPlace of = ChunkPlace::middle;
  HeldCounts held{};
  bool operator==(const Moment&) const = default;
};

struct StageMoments {
  std::vector<Moment> moments;  // none holds less of everything than another in which the same runs
  ByPlace unshards{};           // a step, mean of the chunks at the place; of several stages the most
  // The moments without what none of them holds, for quick sums: which of the held there are, filled up to a
  // multiple of `wide` by ones that count 0; and as many counts for each moment.
  static constexpr size_t wide = 4;
  std::vector<uint8_t> columns;
  std::vector<double> counts;
  void pack();
};

struct PipelineMoments {
  StageMoments first, middle, last;  // middle: what any stage between holds; where there are such
  // Where each group of micro-batches adds to what is held: the same with one group more, and how many groups
  // there are beyond these. Null: none does.
  std::shared_ptr<const PipelineMoments> with_group;
  double groups = 0;
  void pack();
};

// Not for use by several threads at once.
class PipelineShapes {
 public:
  // `overlaps_gradients`: software.overlap_gradients. `scatter`: of zero 2 and 3.
  PipelineShapes(bool overlaps_gradients, config::GradientScatter scatter)
      : overlaps_gradients_(overlaps_gradients), scatter_(scatter) {}

  struct Key {
    config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
    int stages = 1, chunks = 1, micro_batches = 1;
    bool reshards = true;
    auto operator<=>(const Key&) const = default;
  };
  // By zero, state sharded over more than one rank where zero is not 0. Valid as long as this.
  struct ByZero {
    std::array<PipelineMoments, 4> of;
    bool two_holds_as_one = false;  // with zero = 2 as much is held as with 1
  };
  const ByZero& of(const Key& key);

 private:
  const ByZero& walked(const Key& key);
  ByZero of_all_micro_batches(const Key& key);
  void add_groups(ByZero& out, const Key& key, const Key& shorter, double groups);
  config::RunFile run_of(const Key& key) const;

  bool overlaps_gradients_;
  config::GradientScatter scatter_;
  std::map<Key, ByZero> known_, walked_;
};

}  // namespace lockstep::plan
