#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "comm/group_memory.hpp"
#include "comm/local_world.hpp"
#include "comm/once_text.hpp"
#include "config/run_file.hpp"

namespace lockstep::comm {

static_assert(max_world_size == config::max_local_workers);

namespace {

// Changes with the layout, so that a launcher and a worker of different builds find out.
constexpr std::array<char, 16> magic = {'l', 'o', 'c', 'k', 's', 't', 'e', 'p',
                                        '-', 'a', 'r', 'e', 'n', 'a', '3', 0};

std::string system_error(const std::string& what) {
  return "shared memory: " + what + ": " + std::strerror(errno);
}

// Address space only: pages come as they are touched.
size_t arena_bytes(int world_size) {
  return sizeof(ArenaHeader) + 4096 + groups_of_everyone * GroupMemory::bytes(world_size);
}

std::byte* map_shared(int fd, size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED)
    throw RunError(
        system_error("cannot map " + std::to_string(bytes >> 20) + " MiB of address space (ulimit -v?)"));
  madvise(base, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(base);
}

}  // namespace

std::shared_ptr<SharedArena> SharedArena::create(int world_size) {
  if (world_size < 1 || world_size > max_world_size)
    throw UsageError("the local transport takes 1 to " + std::to_string(max_world_size) + " ranks, not " +
                     std::to_string(world_size));
  const int fd = memfd_create("lockstep", MFD_CLOEXEC);
  if (fd < 0) throw RunError(system_error("memfd_create"));
  const size_t bytes = arena_bytes(world_size);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const std::string error = system_error("cannot size it");
    close(fd);
    throw RunError(error);
  }
  std::shared_ptr<SharedArena> arena(new SharedArena(fd, bytes));
  ArenaHeader& header = arena->header();
  header.bytes = bytes;
  header.world_size = static_cast<uint32_t>(world_size);
  header.next_free.store((sizeof(ArenaHeader) + 4095) / 4096 * 4096);
  header.magic = magic;
  return arena;
}

std::shared_ptr<SharedArena> SharedArena::attach(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw RunError(system_error("descriptor " + std::to_string(fd)));
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes < sizeof(ArenaHeader))
    throw RunError("shared memory: descriptor " + std::to_string(fd) + " is no Lockstep arena");
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) throw RunError(system_error("cannot duplicate descriptor " + std::to_string(fd)));
  std::shared_ptr<SharedArena> arena(new SharedArena(own, bytes));
  if (arena->header().magic != magic || arena->header().bytes != bytes)
    throw RunError("shared memory: descriptor " + std::to_string(fd) +
                   " is no arena of this build of Lockstep");
  return arena;
}

SharedArena::SharedArena(int fd, size_t bytes) : fd_(fd), bytes_(bytes) {
  try {
    base_ = map_shared(fd, bytes);
  } catch (...) {
    close(fd);
    throw;
  }
}

SharedArena::~SharedArena() {
  munmap(base_, bytes_);
  close(fd_);
}

ArenaHeader& SharedArena::header() const { return *reinterpret_cast<ArenaHeader*>(base_); }

int SharedArena::world_size() const { return static_cast<int>(header().world_size); }

void SharedArena::mark_dead(int rank, std::string_view why) {
  if (rank < 0 || rank >= world_size())
    throw UsageError("cannot mark rank " + std::to_string(rank) + " of a world of " +
                     std::to_string(world_size()));
  write_once(header().death[static_cast<size_t>(rank)], why);
  uint32_t nobody = 0;
  header().first_dead.compare_exchange_strong(nobody, static_cast<uint32_t>(rank) + 1);
  for (const GroupEntry& entry : header().groups) {
    const uint64_t offset = entry.offset.load(std::memory_order_acquire);
    if (offset != 0 && offset != GroupEntry::no_room) ring_group(*this, offset);
  }
}

bool SharedArena::any_dead() const { return header().first_dead.load(std::memory_order_acquire) != 0; }

int SharedArena::first_dead() const { return static_cast<int>(header().first_dead.load()) - 1; }

std::string SharedArena::first_dead_reason() const {
  const int rank = first_dead();
  return rank < 0 ? std::string() : read_once(header().death[static_cast<size_t>(rank)]);
}

std::string SharedArena::death_text() const {
  const std::string reason = first_dead_reason();
  return "global rank " + std::to_string(first_dead()) + " died" +
         (reason.empty() ? "" : " (" + reason + ")");
}

}  // namespace lockstep::comm
