#include "comm/reduce.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

// The loops below are short and hot; the rest of the program is built for size of compile time.
#pragma GCC optimize("O3")

namespace lockstep::comm {
namespace {

constexpr size_t block = 1024;  // elements summed at a time: the accumulators stay in the first-level cache

struct Bf16 {
  uint16_t bits;
};

template <class T>
struct Accumulator {
  // Unsigned, so that sums wrap; the bits are those of the signed sum.
  using type =
      typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
};
template <>
struct Accumulator<Bf16> {
  using type = float;
};

template <class T>
inline T load(T value) {
  return value;
}
inline float load(Bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

template <class T, class A>
inline T rounded(A value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    const uint32_t nearest_even = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return {static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : nearest_even)};
  } else {
    return static_cast<T>(value);
  }
}

template <class T, ReduceOp op, class A>
inline A combine(A sum, T value) {
  const auto next = load(value);
  if constexpr (op == ReduceOp::sum)
    return static_cast<A>(sum + static_cast<A>(next));
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(sum) < next ? static_cast<A>(next) : sum;
  else
    return (next > sum || next != next) ? next : sum;
}

// `out` may be one of the sources itself, never shifted against one, hence the pragmas.
template <class T, ReduceOp op>
void reduce_block(std::span<const std::byte* const> sources, size_t offset, size_t n, T* out) {
  using A = typename Accumulator<T>::type;
  const T* first = reinterpret_cast<const T*>(sources[0]) + offset;
  const T* last = reinterpret_cast<const T*>(sources.back()) + offset;
  if (sources.size() == 2) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i)
      out[i] = rounded<T>(combine<T, op>(static_cast<A>(load(first[i])), last[i]));
    return;
  }
  A sums[block];
  for (size_t i = 0; i < n; ++i) sums[i] = static_cast<A>(load(first[i]));
  for (size_t s = 1; s + 1 < sources.size(); ++s) {
    const T* source = reinterpret_cast<const T*>(sources[s]) + offset;
    for (size_t i = 0; i < n; ++i) sums[i] = combine<T, op>(sums[i], source[i]);
  }
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) out[i] = rounded<T>(combine<T, op>(sums[i], last[i]));
}

template <class T, ReduceOp op>
void reduce_as(std::span<const std::byte* const> sources, std::byte* destination, std::byte* second,
               size_t count) {
  if (sources.size() == 1) {  // nothing to add: bits stay as they are
    copy_bytes(destination, sources[0], count * sizeof(T));
    if (second != nullptr) copy_bytes(second, sources[0], count * sizeof(T));
    return;
  }
  for (size_t at = 0; at < count; at += block) {
    const size_t n = std::min(block, count - at);
    T* out = reinterpret_cast<T*>(destination) + at;
    reduce_block<T, op>(sources, at, n, out);
    if (second != nullptr) std::memcpy(reinterpret_cast<T*>(second) + at, out, n * sizeof(T));
  }
}

template <class T>
void reduce_type(std::span<const std::byte* const> sources, std::byte* destination, std::byte* second,
                 size_t count, ReduceOp op) {
  if (op == ReduceOp::sum)
    reduce_as<T, ReduceOp::sum>(sources, destination, second, count);
  else
    reduce_as<T, ReduceOp::max>(sources, destination, second, count);
}

}  // namespace

void reduce(std::span<const std::byte* const> sources, std::byte* destination, std::byte* second,
            size_t count, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::u8:
      return reduce_type<uint8_t>(sources, destination, second, count, op);
    case DataType::i32:
      return reduce_type<int32_t>(sources, destination, second, count, op);
    case DataType::i64:
      return reduce_type<int64_t>(sources, destination, second, count, op);
    case DataType::bf16:
      return reduce_type<Bf16>(sources, destination, second, count, op);
    case DataType::f32:
      return reduce_type<float>(sources, destination, second, count, op);
    case DataType::f64:
      return reduce_type<double>(sources, destination, second, count, op);
  }
}

}  // namespace lockstep::comm
