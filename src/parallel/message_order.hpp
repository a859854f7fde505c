// Where sends and receives stand between the passes of a schedule.
//
// All messages and passes of all ranks are put into one global order in time, and every rank keeps that
// order. A message then never waits for something that waits for it, even if each send blocks until it is
// received: two neighbours that send to each other at once cannot deadlock.
#pragma once

#include <vector>

#include "parallel/program.hpp"

namespace lockstep::parallel {

// For every rank: its forwards and backwards with the messages between them.
std::vector<std::vector<Action>> passes_with_messages(const Schedule& schedule);

}  // namespace lockstep::parallel
