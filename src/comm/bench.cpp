#include "comm/bench.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>

#include "base/error.hpp"
#include "base/units.hpp"
#include "comm/process_ranks.hpp"
#include "comm/step_executor.hpp"

namespace lockstep::comm {
namespace {

using collective::Collective;

// Small integers, so that any order of a sum is exact.
float element(int rank, size_t i) {
  return static_cast<float>((i * 31 + static_cast<size_t>(rank) * 17) % 61) - 30.f;
}

class RankBench {
 public:
  RankBench(World& world, const BenchOptions& options)
      : options_(options),
        ranks_(world.size()),
        rank_(world.rank()),
        group_(world.group("bench", everyone())) {
    if (!options.algorithm.empty()) steps_ = collective::build(options.collective, options.algorithm, ranks_);
  }

  // "microseconds wrong" of one size.
  std::string measure(size_t bytes) {
    data_.assign(bytes / sizeof(float), 0.f);
    size_t wrong = check();
    std::fill(data_.begin(), data_.end(), 0.f);  // sums of it stay finite however often
    const int iterations = options_.iterations > 0 ? options_.iterations : iterations_for(bytes);
    repeat(std::max(2, iterations / 5));
    std::vector<double> times;
    for (int k = 0; k < options_.repetitions; ++k) times.push_back(repeat(iterations));
    wrong += check();
    std::nth_element(times.begin(), times.begin() + options_.repetitions / 2, times.end());
    auto all_wrong = static_cast<int64_t>(wrong);
    group_->all_reduce(&all_wrong, 1, DataType::i64);
    std::ostringstream line;
    line << times[static_cast<size_t>(options_.repetitions / 2)] << ' ' << all_wrong << '\n';
    return line.str();
  }

 private:
  std::vector<int> everyone() const {
    std::vector<int> ranks;
    for (int r = 0; r < ranks_; ++r) ranks.push_back(r);
    return ranks;
  }

  static int iterations_for(size_t bytes) {
    return bytes > (size_t{4} << 20) ? 3 : bytes > (1 << 18) ? 20 : 100;
  }

  // Microseconds a call, of the slowest rank.
  double repeat(int iterations) {
    using Clock = std::chrono::steady_clock;
    group_->barrier();
    const auto start = Clock::now();
    for (int i = 0; i < iterations; ++i) once();
    double time = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / iterations;
    group_->all_reduce(&time, 1, DataType::f64, ReduceOp::max);
    return time;
  }

  void once() {
    const size_t count = data_.size(), part = count / static_cast<size_t>(ranks_);
    float* mine = data_.data() + part * static_cast<size_t>(rank_);
    if (!options_.algorithm.empty())
      return run_steps(steps_, *group_, data_.data(), count, DataType::f32, ReduceOp::sum, 0);
    switch (options_.collective) {
      case Collective::all_reduce:
        return group_->all_reduce(data_.data(), count, DataType::f32);
      case Collective::all_gather:
        return group_->all_gather(mine, data_.data(), part, DataType::f32);
      case Collective::reduce_scatter:
        return group_->reduce_scatter(data_.data(), mine, part, DataType::f32);
      case Collective::broadcast:
        return group_->broadcast(data_.data(), count, DataType::f32, 0);
    }
  }

  // Elements that come out wrong on this rank.
  size_t check() {
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = element(rank_, i);
    once();
    const size_t part = data_.size() / static_cast<size_t>(ranks_);
    const bool scattered = options_.collective == Collective::reduce_scatter;
    const size_t begin = scattered ? part * static_cast<size_t>(rank_) : 0;
    const size_t end = scattered ? begin + part : data_.size();
    size_t wrong = 0;
    for (size_t i = begin; i < end; ++i) wrong += data_[i] != expected(i, part) ? 1 : 0;
    return wrong;
  }

  float expected(size_t i, size_t part) const {
    if (options_.collective == Collective::broadcast) return element(0, i);
    if (options_.collective == Collective::all_gather) return element(static_cast<int>(i / part), i);
    float sum = 0;
    for (int r = 0; r < ranks_; ++r) sum += element(r, i);
    return sum;
  }

  const BenchOptions& options_;
  int ranks_, rank_;
  std::unique_ptr<Communicator> group_;
  collective::StepList steps_{};
  std::vector<float> data_;
};

// Buffers beyond the machine's memory would have the system kill some process, ours or another's.
void check_memory(size_t ranks, size_t bytes) {
  const size_t memory =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  if (bytes <= memory / ranks) return;
  throw UsageError("--bytes " + std::to_string(bytes) + ": " + std::to_string(ranks) +
                   " ranks hold a buffer each, but this machine has " +
                   format_binary_bytes(static_cast<double>(memory)) + " of memory: at most " +
                   std::to_string(memory / ranks / (sizeof(float) * ranks) * (sizeof(float) * ranks)));
}

void check_options(const BenchOptions& options) {
  if (options.ranks < 1)
    throw UsageError("--ranks " + std::to_string(options.ranks) + ": at least 1 is needed");
  if (options.repetitions < 1 || options.iterations < 0) throw UsageError("repetitions must be positive");
  if (!options.algorithm.empty()) collective::build(options.collective, options.algorithm, options.ranks);
  const bool parts =
      options.collective == Collective::all_gather || options.collective == Collective::reduce_scatter;
  const size_t unit = sizeof(float) * (parts ? static_cast<size_t>(options.ranks) : 1);
  for (const size_t bytes : options.bytes) {
    check_memory(static_cast<size_t>(options.ranks), bytes);
    if (bytes == 0 || bytes % unit != 0)
      throw UsageError("--bytes " + std::to_string(bytes) + ": " + std::string(name_of(options.collective)) +
                       " of fp32 over " + std::to_string(options.ranks) + " ranks needs a multiple of " +
                       std::to_string(unit) +
                       "; nearest: " + std::to_string(std::max(unit, (bytes + unit / 2) / unit * unit)));
  }
}

double bus_factor(Collective c, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  return c == Collective::all_reduce ? 2 * others : c == Collective::broadcast ? 1 : others;
}

}  // namespace

std::vector<BenchRow> bench_collective(const BenchOptions& options) {
  check_options(options);
  const auto outcomes = run_in_processes(options.ranks, [&](World& world) {
    RankBench bench(world, options);
    std::string lines;
    for (const size_t bytes : options.bytes) lines += bench.measure(bytes);
    return lines;
  });
  for (size_t r = 0; r < outcomes.size(); ++r)
    if (!outcomes[r].error.empty())
      throw RunError("bench collective: rank " + std::to_string(r) + ": " + outcomes[r].error);
  std::istringstream lines(outcomes[0].report);
  std::vector<BenchRow> rows;
  for (const size_t bytes : options.bytes) {
    BenchRow row{std::string(name_of(options.collective)),
                 options.algorithm.empty() ? "local" : options.algorithm, options.ranks, bytes};
    if (!(lines >> row.microseconds >> row.wrong))
      throw RunError("bench collective: rank 0 reported no time");
    row.algbw_gbps = static_cast<double>(bytes) / row.microseconds / 1e3;
    row.busbw_gbps = row.algbw_gbps * bus_factor(options.collective, options.ranks);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace lockstep::comm
