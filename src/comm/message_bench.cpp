#include "comm/message_bench.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "comm/process_ranks.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

// One of the two ends of a message that goes to and fro.
class End {
 public:
  explicit End(World& world) : group_(world.group("messages", {0, 1})), first_(world.rank() == 0) {}

  // Microseconds of one message of this size.
  double measure(size_t bytes, int repetitions) {
    data_.assign(bytes, first_ ? 1 : 0);
    round_trip();
    if (data_.front() != 1 || data_.back() != 1) throw RunError("a message came with other bytes");
    const int trips = bytes > (size_t{1} << 20) ? 3 : bytes > (1 << 16) ? 20 : 200;
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      group_->barrier();
      const auto start = Clock::now();
      for (int trip = 0; trip < trips; ++trip) round_trip();
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / (2 * trips));
    }
    std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
    return times[static_cast<size_t>(repetitions / 2)];
  }

 private:
  void send() { group_->send(data_.data(), data_.size(), DataType::u8, first_ ? 1 : 0, 0); }
  void receive() { group_->recv(data_.data(), data_.size(), DataType::u8, first_ ? 1 : 0, 0); }
  void round_trip() {
    if (first_) send();
    receive();
    if (!first_) send();
  }

  std::unique_ptr<Communicator> group_;
  bool first_;
  std::vector<unsigned char> data_;
};

}  // namespace

std::vector<MessageRow> bench_messages(const std::vector<size_t>& bytes, int repetitions) {
  if (repetitions < 1) throw UsageError("repetitions must be positive");
  for (const size_t size : bytes) {
    if (size == 0) throw UsageError("a message of 0 bytes has no end to look at; give at least 1");
  }
  const auto outcomes = run_in_processes(2, [&](World& world) {
    End end(world);
    std::ostringstream line;
    line.precision(17);
    for (const size_t size : bytes) line << end.measure(size, repetitions) << ' ';
    return line.str();
  });
  for (const RankOutcome& outcome : outcomes) {
    if (!outcome.error.empty()) throw RunError("messages between two processes: " + outcome.error);
  }
  std::istringstream line(outcomes[0].report);
  std::vector<MessageRow> rows;
  for (const size_t size : bytes) {
    rows.push_back({size});
    if (!(line >> rows.back().microseconds)) throw RunError("a process reported no time for its messages");
  }
  return rows;
}

}  // namespace lockstep::comm
