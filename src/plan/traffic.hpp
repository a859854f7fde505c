// What a rank sends in a step, by axis.
#pragma once

#include <cstdint>

#include "parallel/program.hpp"

namespace lockstep::plan {

// Bytes of a stage's messages and collectives as nccl-tests counts them, model::Op::bytes: of a collective
// the whole tensor, whatever the algorithm sends over each link. Groups made of an axis count to it: tp_kv to
// tp, pp_ends to pp, dp_cp (state sharded over both) to dp.
struct Traffic {
  int stage = 0;
  int64_t tp = 0, cp = 0, pp = 0, dp = 0;
};

Traffic traffic_of(const parallel::Layout& layout, const parallel::Program& program);

}  // namespace lockstep::plan
