// Every collective against plain loops over what all ranks are known to bring.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/philox.hpp"
#include "ranks.hpp"

namespace lockstep::comm::test {
namespace {

// Element i of what rank r brings. Not round numbers: the order of a sum shows in its last bits.
template <class T>
T element(int rank, size_t i) {
  const auto random = philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(rank), 7, 0}, {1, 2});
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>((uniform_open(random[0], random[1]) - 0.5) *
                          std::exp2(static_cast<int>(random[2] % 20)));
  else
    return static_cast<T>(random[0] | uint64_t{random[1]} << 32);
}

template <class T>
std::vector<T> brought(int rank, size_t n) {
  std::vector<T> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = element<T>(rank, i);
  return values;
}

// What all ranks bring and what must come of it, from plain loops; made once, before the ranks start.
template <class T>
struct Truth {
  std::vector<std::vector<T>> brought;
  std::vector<T> sum, most;

  Truth(int ranks, size_t n) {
    for (int r = 0; r < ranks; ++r) {
      brought.push_back(comm::test::brought<T>(r, n));
      const std::vector<T>& more = brought.back();
      if (r == 0) sum = most = more;
      for (size_t i = 0; r > 0 && i < n; ++i) {
        if constexpr (std::is_integral_v<T>)
          sum[i] = static_cast<T>(static_cast<uint64_t>(sum[i]) + static_cast<uint64_t>(more[i]));
        else
          sum[i] = sum[i] + more[i];
        most[i] = std::max(most[i], more[i]);
      }
    }
  }
};

template <class T>
std::vector<T> part_of(const std::vector<T>& values, size_t begin, size_t n) {
  const auto from = values.begin() + static_cast<std::ptrdiff_t>(begin);
  return {from, from + static_cast<std::ptrdiff_t>(n)};
}

template <class T>
void same(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what) {
  if (got.size() != expected.size()) throw std::runtime_error(what + ": size");
  for (size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &expected[i], sizeof(T)) != 0)
      throw std::runtime_error(what + ": element " + std::to_string(i) + " of " + std::to_string(got.size()) +
                               " is " + std::to_string(got[i]) + ", not " + std::to_string(expected[i]));
}

template <class T>
void check_values(World& world, DataType type, const Truth<T>& truth) {
  const auto group = world.group("g", everyone(world.size()));
  const auto me = static_cast<size_t>(world.rank()), parts = static_cast<size_t>(world.size());
  const size_t total = truth.sum.size(), n = total / parts;
  const std::vector<T>& mine = truth.brought[me];
  for (const bool async : {false, true}) {
    const auto run = [&](auto blocking, auto asynchronous) {
      if (async)
        asynchronous().wait();
      else
        blocking();
    };
    std::vector<T> all = mine;
    run([&] { group->all_reduce(all.data(), total, type); },
        [&] { return group->all_reduce_async(all.data(), total, type); });
    same(all, truth.sum, "all_reduce sum");
    all = mine;
    run([&] { group->all_reduce(all.data(), total, type, ReduceOp::max); },
        [&] { return group->all_reduce_async(all.data(), total, type, ReduceOp::max); });
    same(all, truth.most, "all_reduce max");

    std::vector<T> part(n);
    run([&] { group->reduce_scatter(mine.data(), part.data(), n, type); },
        [&] { return group->reduce_scatter_async(mine.data(), part.data(), n, type); });
    same(part, part_of(truth.sum, n * me, n), "reduce_scatter");

    std::vector<T> gathered(total), expected;
    for (const auto& values : truth.brought)
      expected.insert(expected.end(), values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
    run([&] { group->all_gather(mine.data(), gathered.data(), n, type); },
        [&] { return group->all_gather_async(mine.data(), gathered.data(), n, type); });
    same(gathered, expected, "all_gather");

    for (size_t root = 0; root < parts; ++root) {
      std::vector<T> data = part_of(mine, 0, n);
      run([&] { group->broadcast(data.data(), n, type, static_cast<int>(root)); },
          [&] { return group->broadcast_async(data.data(), n, type, static_cast<int>(root)); });
      same(data, part_of(truth.brought[root], 0, n), "broadcast");
    }
    run([&] { group->barrier(); }, [&] { return group->barrier_async(); });
  }
}

using Launch = std::function<std::vector<std::string>(const RankBody&)>;

template <class T>
void expect_values(int ranks, DataType type, size_t n, const Launch& launch) {
  const Truth<T> truth(ranks, n * static_cast<size_t>(ranks));
  expect_no_errors(launch([&](World& world) { check_values<T>(world, type, truth); }));
}

void expect_all_types(int ranks, size_t n, const Launch& launch) {
  expect_values<float>(ranks, DataType::f32, n, launch);
  expect_values<double>(ranks, DataType::f64, n, launch);
  expect_values<int64_t>(ranks, DataType::i64, n, launch);
  expect_values<int32_t>(ranks, DataType::i32, n, launch);
  expect_values<uint8_t>(ranks, DataType::u8, n, launch);
}

class Values : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Values, testing::Values(1, 2, 3, 5, 8));

TEST_P(Values, OfThreadsMatchPlainLoops) {
  const auto launch = [](const RankBody& body) { return run_threads(GetParam(), body); };
  for (const size_t n : {0, 1, 3, 64, 1000, 4097}) expect_all_types(GetParam(), n, launch);
}

TEST_P(Values, OfProcessesMatchPlainLoops) {
  const auto launch = [](const RankBody& body) { return run_processes(GetParam(), body); };
  for (const size_t n : {0, 1, 17, 1025}) expect_all_types(GetParam(), n, launch);
}

// Crosses every limit between one round and many, with lengths that no piece divides.
TEST_P(Values, OfLargeBuffersMatchPlainLoops) {
  const auto launch = [](const RankBody& body) { return run_processes(GetParam(), body); };
  for (const size_t n : {size_t{40'001}, size_t{131'072}, size_t{300'007}})
    expect_values<float>(GetParam(), DataType::f32, n, launch);
}

TEST(Values, InputMayBeItsSlotOfTheOutput) {
  expect_no_errors(run_threads(3, [](World& world) {
    const auto group = world.group("g", everyone(3));
    const auto me = static_cast<size_t>(world.rank());
    for (const size_t n : {size_t{5}, size_t{200'001}}) {
      const Truth<float> truth(3, 3 * n);
      std::vector<float> gathered(3 * n), expected;
      for (int r = 0; r < 3; ++r)
        for (size_t i = 0; i < n; ++i) expected.push_back(element<float>(r, i));
      const std::vector<float> mine = brought<float>(world.rank(), n);
      std::copy(mine.begin(), mine.end(), gathered.begin() + static_cast<std::ptrdiff_t>(me * n));
      group->all_gather(gathered.data() + me * n, gathered.data(), n, DataType::f32);
      same(gathered, expected, "all_gather in place");

      std::vector<float> scattered = brought<float>(world.rank(), 3 * n);
      group->reduce_scatter(scattered.data(), scattered.data() + me * n, n, DataType::f32);
      same(part_of(scattered, me * n, n), part_of(truth.sum, me * n, n), "reduce_scatter in place");
    }
  }));
}

// fp32 arithmetic on the values, then the definition of round to nearest even by comparing neighbours.
uint16_t nearest_bf16(double exact) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(exact));
  const uint32_t below = bits >> 16, above = below + 1;
  const double low = std::bit_cast<float>(below << 16), high = std::bit_cast<float>(above << 16);
  const double to_low = std::abs(exact - low), to_high = std::abs(exact - high);
  if (to_low != to_high) return static_cast<uint16_t>(to_low < to_high ? below : above);
  return static_cast<uint16_t>(below % 2 == 0 ? below : above);
}

TEST(Values, Bf16IsSummedInFp32AndRoundedOnce) {
  expect_no_errors(run_threads(5, [](World& world) {
    const auto group = world.group("g", everyone(5));
    for (const size_t n : {size_t{1}, size_t{3001}, size_t{400'001}}) {
      const auto value = [](int rank, size_t i) {
        return static_cast<uint16_t>(std::bit_cast<uint32_t>(element<float>(rank, i)) >> 16);
      };
      std::vector<uint16_t> data(n), expected(n);
      for (size_t i = 0; i < n; ++i) {
        data[i] = value(world.rank(), i);
        float sum = 0;
        for (int r = 0; r < 5; ++r) sum += std::bit_cast<float>(uint32_t{value(r, i)} << 16);
        expected[i] = nearest_bf16(sum);
      }
      group->all_reduce(data.data(), n, DataType::bf16);
      same(data, expected, "bf16");
    }
  }));
}

TEST(Values, Bf16KeepsInfinityAndNan) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", everyone(2));
    const uint16_t infinity = 0x7F80, nan = 0x7F81, largest = 0x7F7F;
    std::vector<uint16_t> data = {infinity, nan, largest, 0x0001};
    group->all_reduce(data.data(), data.size(), DataType::bf16);
    if (data[0] != infinity) throw std::runtime_error("infinity");
    if ((data[1] & 0x7F80) != 0x7F80 || (data[1] & 0x7F) == 0) throw std::runtime_error("nan");
    if (data[2] != infinity) throw std::runtime_error("overflow");
    if (data[3] != 0x0002) throw std::runtime_error("subnormal");
  }));
}

TEST(Values, MaximumLetsANanThrough) {
  expect_no_errors(run_threads(3, [](World& world) {
    const auto group = world.group("g", everyone(3));
    for (int bad = 0; bad < 3; ++bad) {
      double value = world.rank() == bad ? std::nan("") : 1.0;
      group->all_reduce(&value, 1, DataType::f64, ReduceOp::max);
      if (!std::isnan(value)) throw std::runtime_error("lost the NaN of rank " + std::to_string(bad));
    }
  }));
}

// Sizes on either side of each path's limit: a scattered sum is the slice of the whole sum, and so is a part
// of a longer buffer, to the last bit.
TEST(Values, EveryPathGivesTheSameBits) {
  for (const int ranks : {2, 3, 8}) {
    expect_no_errors(run_processes(ranks, [](World& world) {
      const auto group = world.group("g", everyone(world.size()));
      const auto parts = static_cast<size_t>(world.size());
      const size_t n = 150'000, total = n * parts;
      const std::vector<float> mine = brought<float>(world.rank(), total);
      std::vector<float> whole = mine, part(n);
      group->all_reduce(whole.data(), total, DataType::f32);
      group->reduce_scatter(mine.data(), part.data(), n, DataType::f32);
      const auto at = static_cast<std::ptrdiff_t>(n) * world.rank();
      same(part, {whole.begin() + at, whole.begin() + at + static_cast<std::ptrdiff_t>(n)}, "slice");
      std::vector<float> small(mine.begin(), mine.begin() + 1000);
      group->all_reduce(small.data(), small.size(), DataType::f32);
      same(small, {whole.begin(), whole.begin() + 1000}, "short call");
    }));
  }
}

}  // namespace
}  // namespace lockstep::comm::test
