#include "train/tensor_memory.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>

namespace lockstep::train {

namespace {

// LibTorch takes one allocator a process, as a plain pointer that is never deleted: so this is process-wide
// state, the one place that has it.
struct Counts {
  std::atomic<int64_t> live{0};
  std::atomic<int64_t> peak{0};

  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t before = peak.load(std::memory_order_relaxed);
    while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
    }
  }
};
Counts& counts() {
  static Counts of_process;
  return of_process;
}

constexpr size_t header = 64;  // keeps the alignment; holds the size

void free_counted(void* data) {
  if (data == nullptr) return;
  auto* const block = static_cast<char*>(data) - header;
  counts().live.fetch_sub(*reinterpret_cast<int64_t*>(block), std::memory_order_relaxed);
  c10::free_cpu(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &free_counted, cpu};
    auto* const block = static_cast<char*>(c10::alloc_cpu(bytes + header));
    *reinterpret_cast<int64_t*>(block) = static_cast<int64_t>(bytes);
    counts().add(static_cast<int64_t>(bytes));
    return {block + header, block + header, &free_counted, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
};

}  // namespace

void count_tensor_memory() {
  static CountingAllocator allocator;
  constexpr uint8_t above_default = 1;
  c10::SetCPUAllocator(&allocator, above_default);
}

int64_t tensor_bytes() { return counts().live.load(std::memory_order_relaxed); }
int64_t peak_tensor_bytes() { return counts().peak.load(std::memory_order_relaxed); }
void reset_peak_tensor_bytes() { counts().peak.store(tensor_bytes(), std::memory_order_relaxed); }

}  // namespace lockstep::train
