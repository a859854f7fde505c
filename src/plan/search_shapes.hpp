// What pipeline positions hold at their fullest moments, counted in tensors instead of bytes: it depends on
// the shape of the pipeline alone, so that a search walks each shape once and then only multiplies.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
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

struct Moment {
  Running running = Running::forward;
  ChunkPlace of = ChunkPlace::middle;
  ByPlace live{};       // micro-batches' activations of a chunk
  ByPlace stashed{};    // between the halves of a backward
  ByPlace gradients{};  // buffers of unreduced gradients
  ByPlace gathered{};   // parameters (zero = 3)
  ByPlace norms{};      // norms' gradients that wait between the halves
  double messages = 0;  // hidden states and their gradients
};

struct StageMoments {
  std::vector<Moment> moments;  // none holds less of everything than another in which the same runs
  ByPlace unshards{};           // a step, mean of the chunks at the place
};

struct PipelineMoments {
  StageMoments first, middle, last;  // middle: what any stage between holds; where there are such
};

// Not for use by several threads at once.
class PipelineShapes {
 public:
  struct Key {
    config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
    int stages = 1, chunks = 1, micro_batches = 1;
    int zero = 1;
    bool sharded = true;  // over more than one rank
    bool reshards = true;
    auto operator<=>(const Key&) const = default;
  };
  // Valid as long as this.
  const PipelineMoments& of(const Key& key);

 private:
  std::map<Key, PipelineMoments> known_;
};

}  // namespace lockstep::plan
