// Every collective against plain loops over what all ranks are known to bring.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

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

template <class T>
T sum_of(int ranks, size_t i) {
  if constexpr (std::is_integral_v<T>) {
    uint64_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += static_cast<uint64_t>(element<T>(r, i));
    return static_cast<T>(sum);
  } else {
    T sum = element<T>(0, i);
    for (int r = 1; r < ranks; ++r) sum = sum + element<T>(r, i);
    return sum;
  }
}

template <class T>
T max_of(int ranks, size_t i) {
  T most = element<T>(0, i);
  for (int r = 1; r < ranks; ++r) most = std::max(most, element<T>(r, i));
  return most;
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
void check_values(World& world, DataType type, size_t n) {
  const auto group = world.group("g", everyone(world.size()));
  const int me = world.rank(), ranks = world.size();
  const auto parts = static_cast<size_t>(ranks);
  std::vector<T> sum(n * parts), most(n * parts), gathered;
  for (size_t i = 0; i < n * parts; ++i) sum[i] = sum_of<T>(ranks, i), most[i] = max_of<T>(ranks, i);

  const std::vector<T> mine = brought<T>(me, n * parts);
  for (const bool async : {false, true}) {
    std::vector<T> all = mine;
    const auto run = [&](auto blocking, auto asynchronous) {
      if (async)
        asynchronous().wait();
      else
        blocking();
    };
    run([&] { group->all_reduce(all.data(), n * parts, type); },
        [&] { return group->all_reduce_async(all.data(), n * parts, type); });
    same(all, sum, "all_reduce sum");
    all = mine;
    run([&] { group->all_reduce(all.data(), n * parts, type, ReduceOp::max); },
        [&] { return group->all_reduce_async(all.data(), n * parts, type, ReduceOp::max); });
    same(all, most, "all_reduce max");

    std::vector<T> part(n);
    run([&] { group->reduce_scatter(mine.data(), part.data(), n, type); },
        [&] { return group->reduce_scatter_async(mine.data(), part.data(), n, type); });
    const auto from = static_cast<std::ptrdiff_t>(n) * me;
    same(part, {sum.begin() + from, sum.begin() + from + static_cast<std::ptrdiff_t>(n)}, "reduce_scatter");

    std::vector<T> gathered_all(n * parts), expected;
    for (int r = 0; r < ranks; ++r)
      for (size_t i = 0; i < n; ++i) expected.push_back(element<T>(r, i));
    run([&] { group->all_gather(mine.data(), gathered_all.data(), n, type); },
        [&] { return group->all_gather_async(mine.data(), gathered_all.data(), n, type); });
    same(gathered_all, expected, "all_gather");

    for (int root = 0; root < ranks; ++root) {
      std::vector<T> data = brought<T>(me, n);
      run([&] { group->broadcast(data.data(), n, type, root); },
          [&] { return group->broadcast_async(data.data(), n, type, root); });
      same(data, brought<T>(root, n), "broadcast");
    }
    run([&] { group->barrier(); }, [&] { return group->barrier_async(); });
  }
}

void check_types(World& world, size_t n) {
  check_values<float>(world, DataType::f32, n);
  check_values<double>(world, DataType::f64, n);
  check_values<int64_t>(world, DataType::i64, n);
  check_values<int32_t>(world, DataType::i32, n);
  check_values<uint8_t>(world, DataType::u8, n);
}

class Values : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Values, testing::Values(1, 2, 3, 5, 8));

TEST_P(Values, OfThreadsMatchPlainLoops) {
  for (const size_t n : {0, 1, 3, 64, 1000, 4097})
    expect_no_errors(run_threads(GetParam(), [&](World& world) { check_types(world, n); }));
}

TEST_P(Values, OfProcessesMatchPlainLoops) {
  for (const size_t n : {0, 1, 17, 1025})
    expect_no_errors(run_processes(GetParam(), [&](World& world) { check_types(world, n); }));
}

// Crosses every limit between one round and many, with lengths that no piece divides.
TEST_P(Values, OfLargeBuffersMatchPlainLoops) {
  for (const size_t n : {size_t{40'001}, size_t{131'072}, size_t{300'007}})
    expect_no_errors(
        run_processes(GetParam(), [&](World& world) { check_values<float>(world, DataType::f32, n); }));
}

TEST(Values, InputMayBeItsSlotOfTheOutput) {
  expect_no_errors(run_threads(3, [](World& world) {
    const auto group = world.group("g", everyone(3));
    const auto me = static_cast<size_t>(world.rank());
    for (const size_t n : {size_t{5}, size_t{200'001}}) {
      std::vector<float> gathered(3 * n), expected;
      for (int r = 0; r < 3; ++r)
        for (size_t i = 0; i < n; ++i) expected.push_back(element<float>(r, i));
      const std::vector<float> mine = brought<float>(world.rank(), n);
      std::copy(mine.begin(), mine.end(), gathered.begin() + static_cast<std::ptrdiff_t>(me * n));
      group->all_gather(gathered.data() + me * n, gathered.data(), n, DataType::f32);
      same(gathered, expected, "all_gather in place");

      std::vector<float> scattered = brought<float>(world.rank(), 3 * n);
      group->reduce_scatter(scattered.data(), scattered.data() + me * n, n, DataType::f32);
      for (size_t i = 0; i < n; ++i)
        if (scattered[me * n + i] != sum_of<float>(3, me * n + i))
          throw std::runtime_error("reduce_scatter in place");
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
