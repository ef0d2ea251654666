#include "cohort/shm/segment/segment.h"

#include "cohort/shm/trace/trace.h"
#include "cohort/shm/transfer/exchange.h"

namespace cohort::shm {
namespace {

constexpr size_t kPage = 4096;
// Aligned so that staging memory can use huge pages if the system provides them.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlotsPerRank = 4;

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

size_t traces_begin(int world_size) {
  return round_up(kPage + static_cast<size_t>(world_size) * round_up(sizeof(RankBlock), kPage), kPage);
}

size_t channels_begin(int world_size) {
  return traces_begin(world_size) + static_cast<size_t>(world_size) * round_up(Trace::area_bytes(), kPage);
}

size_t small_slots_begin(int world_size) {
  const auto num_channels = static_cast<size_t>(world_size) * static_cast<size_t>(world_size);
  return channels_begin(world_size) + num_channels * round_up(Exchange::channel_bytes(), kPage);
}

size_t slots_begin(int world_size) {
  return round_up(small_slots_begin(world_size) + static_cast<size_t>(world_size) * kRounds * kSmallBytes, kHugePage);
}

}  // namespace

size_t Layout::block_offset(int rank) const {
  return kPage + static_cast<size_t>(rank) * round_up(sizeof(RankBlock), kPage);
}

size_t Layout::trace_offset(int rank) const {
  return traces_begin(world_size) + static_cast<size_t>(rank) * round_up(Trace::area_bytes(), kPage);
}

size_t Layout::channel_offset(int source, int destination) const {
  const auto index = static_cast<size_t>(source) * static_cast<size_t>(world_size) + static_cast<size_t>(destination);
  return channels_begin(world_size) + index * round_up(Exchange::channel_bytes(), kPage);
}

size_t Layout::small_slot_offset(int rank, uint64_t round) const {
  return small_slots_begin(world_size) + (static_cast<size_t>(rank) * kRounds + round % kRounds) * kSmallBytes;
}

size_t Layout::slot_offset(int rank, int slot) const {
  return slots_begin(world_size) + (static_cast<size_t>(rank) * kSlotsPerRank + static_cast<size_t>(slot)) * slot_bytes;
}

size_t Layout::num_bytes() const { return slot_offset(world_size, 0); }

}  // namespace cohort::shm
