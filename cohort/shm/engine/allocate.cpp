// Group::allocate and allocate_common: memory that every rank maps.
#include <fmt/format.h>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/engine/collective.h"
#include "cohort/shm/memory/common_memory.h"
#include "cohort/shm/memory/handover.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;

constexpr size_t kAddressBytes = 64;
constexpr size_t kCauseBytes = 512;

// Uses memory that a rank has received. Returns an error if the rank cannot use it.
using Taker = std::function<base::Result<void>(SharedMemoryPtr memory, const base::Fd& fd)>;

// Rank 0 sends a new address to the others; then all ranks take the memory, or learn which rank could not.
struct Allocation {
  Collective& collective;
  size_t total;
  std::string what;  ///< "4 MiB per rank"
  milliseconds limit;

  base::Result<void> meet(const std::string& address, const Taker& take) const {
    const Meeting meeting{address, collective.rank(), collective.size(), base::deadline_after(limit), {}};
    if (collective.rank() != 0) {
      const auto fd = receive_handed_over(meeting);
      if (!fd) return fd.error();
      auto memory = SharedMemory::open(*fd, total);
      return memory ? take(std::move(*memory), *fd) : memory.error();
    }
    base::Fd fd;
    auto memory = SharedMemory::create(total, &fd);
    // The other ranks wait for a descriptor in any case.
    const base::Fd none(memory ? -1 : ::dup(0));
    if (auto done = hand_over(meeting, memory ? fd : none); !done) return done.error();
    return memory ? take(std::move(*memory), fd) : memory.error();
  }

  Outcome run(const Taker& take) const {
    auto* const slot = reinterpret_cast<char*>(collective.input_slot());
    if (collective.rank() == 0) std::strncpy(slot, new_address().c_str(), kAddressBytes);
    if (auto failure = collective.open()) return failure;
    const auto* const address = reinterpret_cast<const char*>(collective.input_of(0));
    const auto taken = meet(std::string(address, strnlen(address, kAddressBytes)), take);
    // An empty text means success on this rank.
    auto* const report = reinterpret_cast<char*>(collective.input_slot());
    std::memset(report, 0, kCauseBytes);
    if (!taken) std::strncpy(report, taken.error().message().c_str(), kCauseBytes - 1);
    if (auto failure = collective.meet()) return failure;
    for (int peer = 0; peer < collective.size(); ++peer) {
      const auto* const theirs = reinterpret_cast<const char*>(collective.input_of(peer));
      if (*theirs == '\0') continue;
      // All ranks know of it, so the group stays usable.
      return fail({Failure::Kind::kArgument,
                   {fmt::format("rank {} cannot take {}: {}", collective.group().name_of_rank(peer), what,
                                std::string(theirs, strnlen(theirs, kCauseBytes)))},
                   ""});
    }
    return nullptr;
  }
};

}  // namespace

Outcome Group::allocate(size_t num_bytes, void** memory, const CallOptions& options) {
  const Call call{.kind = OpKind::kAllocate, .dtype = DType::kBytes, .count = num_bytes};
  const TraceRecord record{.kind = call.kind, .num_outputs = num_bytes, .call_site = options.call_site};
  const auto limit = options.timeout.value_or(state_->options.timeout);
  return run_collective(*state_, call, record, options, [&](Collective& collective) -> Outcome {
    const auto part = whole_pages(std::max<size_t>(num_bytes, 1));
    SharedMemoryPtr taken;
    const Allocation allocation{collective, part * static_cast<size_t>(collective.size()),
                                base::format_bytes(num_bytes) + " per rank", limit};
    const auto take = [&](SharedMemoryPtr given, const base::Fd&) -> base::Result<void> {
      taken = std::move(given);
      return {};
    };
    if (auto failure = allocation.run(take)) return failure;
    *memory = state_->regions.add(std::move(taken), part);
    return nullptr;
  });
}

Outcome Group::allocate_common(size_t num_bytes, bool has_pages, CommonMemory* memory, const CallOptions& options) {
  const Call call{.kind = OpKind::kAllocate, .dtype = DType::kBytes, .count = num_bytes};
  const TraceRecord record{.kind = call.kind, .num_outputs = num_bytes, .call_site = options.call_site};
  const auto limit = options.timeout.value_or(state_->options.timeout);
  return run_collective(*state_, call, record, options, [&](Collective& collective) {
    const auto total = whole_pages(std::max<size_t>(num_bytes, 1));
    const Allocation allocation{collective, total, base::format_bytes(num_bytes) + " for all ranks", limit};
    return allocation.run([&](SharedMemoryPtr given, const base::Fd& fd) -> base::Result<void> {
      if (has_pages) {
        if (auto made = make_pages(fd, total, collective.rank(), collective.size()); !made) return made.error();
      }
      auto readable = ReadOnlyMapping::create(fd, total);
      if (!readable) return readable.error();
      given->keep_from_children();
      *memory = {std::move(given), std::move(*readable)};
      return {};
    });
  });
}

std::vector<SharedMemoryPtr> Group::arenas() const { return state_->regions.arenas(); }

void Group::release(void* memory) { Regions::release(memory); }
size_t Group::num_allocated_bytes() { return Regions::num_bytes(); }
bool Group::has_arenas() const { return state_->regions.has_arenas(); }
void Group::set_staged_bytes(size_t num_bytes) { staged_bytes = num_bytes; }

}  // namespace cohort::shm
