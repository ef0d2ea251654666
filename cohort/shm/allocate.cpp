// Group::allocate: memory that every rank maps.
#include <fmt/format.h>
#include <cstring>

#include "cohort/base/text.h"
#include "cohort/shm/collective.h"
#include "cohort/shm/handover.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;

constexpr size_t kAddressBytes = 64;
constexpr size_t kCauseBytes = 512;

// Rank 0 tells the others a new address; then everybody takes the memory, or knows who could not.
struct Allocation {
  Collective& collective;
  size_t num_bytes;
  milliseconds limit;

  size_t part_bytes() const { return whole_pages(std::max<size_t>(num_bytes, 1)); }

  base::Result<SharedMemoryPtr> meet(const std::string& address) const {
    const auto total = part_bytes() * static_cast<size_t>(collective.size());
    const Meeting meeting{address, collective.rank(), collective.size(), std::chrono::steady_clock::now() + limit, {}};
    if (collective.rank() != 0) {
      const auto fd = receive_handed_over(meeting);
      if (!fd) return fd.error();
      return SharedMemory::open(*fd, total);
    }
    base::Fd fd;
    auto memory = SharedMemory::create(total, &fd);
    // The others wait for a descriptor in any case.
    const base::Fd none(memory ? -1 : ::dup(0));
    if (auto done = hand_over(meeting, memory ? fd : none); !done) return done.error();
    return memory;
  }

  Outcome run(void** memory) const {
    auto* const slot = reinterpret_cast<char*>(collective.input_slot());
    if (collective.rank() == 0) std::strncpy(slot, new_address().c_str(), kAddressBytes);
    if (auto failure = collective.open()) return failure;
    const auto* const address = reinterpret_cast<const char*>(collective.input_of(0));
    auto taken = meet(std::string(address, strnlen(address, kAddressBytes)));
    // An empty text: all is well here.
    auto* const report = reinterpret_cast<char*>(collective.input_slot());
    std::memset(report, 0, kCauseBytes);
    if (!taken) std::strncpy(report, taken.error().message().c_str(), kCauseBytes - 1);
    if (auto failure = collective.meet()) return failure;
    for (int peer = 0; peer < collective.size(); ++peer) {
      const auto* const theirs = reinterpret_cast<const char*>(collective.input_of(peer));
      if (*theirs == '\0') continue;
      // Everybody knows, so the group stays usable.
      return fail({Failure::Kind::kArgument,
                   {fmt::format("rank {} cannot take {} per rank: {}", collective.group().name_of_rank(peer),
                                base::format_bytes(num_bytes), std::string(theirs, strnlen(theirs, kCauseBytes)))},
                   ""});
    }
    *memory = collective.group().regions.add(std::move(*taken), part_bytes());
    return nullptr;
  }
};

}  // namespace

Outcome Group::allocate(size_t num_bytes, void** memory, const CallOptions& options) {
  const Call call{.kind = OpKind::kAllocate, .dtype = DType::kBytes, .count = num_bytes};
  const TraceRecord record{.kind = call.kind, .num_outputs = num_bytes, .call_site = options.call_site};
  const auto limit = options.timeout.value_or(state_->options.timeout);
  return run_collective(*state_, call, record, options, [&](Collective& collective) {
    return Allocation{collective, num_bytes, limit}.run(memory);
  });
}

void Group::release(void* memory) { Regions::release(memory); }
size_t Group::num_allocated_bytes() { return Regions::num_bytes(); }
bool Group::has_arenas() const { return state_->regions.has_arenas(); }
void Group::set_staged_bytes(size_t num_bytes) { staged_bytes = num_bytes; }

}  // namespace cohort::shm
