// Measures messages between two processes of this machine.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::comm {

struct MessageRow {
  size_t bytes = 0;
  double microseconds = 0;  // of one message, from its send to its arrival: half of a round trip
};

// Starts two processes (fork: call it while this process has no threads), which die with this one. Of
// `repetitions` rounds of many messages the median is told. UsageError for a size of 0, RunError if a process
// fails or a message comes with other bytes than were sent.
std::vector<MessageRow> bench_messages(const std::vector<size_t>& bytes, int repetitions = 7);

}  // namespace lockstep::comm
