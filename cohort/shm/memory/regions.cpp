#include "cohort/shm/memory/regions.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cohort::shm {
namespace {

// Owners of regions, by the address of this process's part. Leaked on purpose, because tensors may be freed while the process
// exits.
struct Owners {
  std::mutex mutex;
  std::map<const void*, std::pair<std::shared_ptr<const void>, size_t>> by_part;
  size_t num_bytes = 0;
};

Owners& owners() {
  static auto* const all = new Owners;
  return *all;
}

}  // namespace

std::byte* Regions::add(SharedMemoryPtr memory, size_t part_bytes) {
  auto* const part = memory->data() + static_cast<size_t>(rank_) * part_bytes;
  const std::lock_guard lock(mutex_);
  const auto number = num_added_.load(std::memory_order_relaxed) + 1;
  auto entry = std::make_shared<const Entry>(Entry{number, part_bytes, std::move(memory)});
  std::erase_if(entries_, [](const auto& known) { return known.expired(); });
  entries_.push_back(entry);
  num_added_.store(number, std::memory_order_relaxed);
  auto& all = owners();
  const std::lock_guard owners_lock(all.mutex);
  all.by_part.emplace(part, std::pair(std::move(entry), part_bytes));
  all.num_bytes += part_bytes;
  return part;
}

Place Regions::find(const void* memory, size_t num_bytes) const {
  if (has_arenas()) {
    const auto& own = *arenas_[static_cast<size_t>(rank_)];
    const auto offset = static_cast<size_t>(static_cast<const std::byte*>(memory) - own.data());
    if (memory >= own.data() && offset < own.size()) {
      return num_bytes <= own.size() - offset ? Place{Place::kInArena, offset} : Place{};
    }
  }
  // Each rank adds regions in its own calls, so the calling thread has seen them.
  if (num_added_.load(std::memory_order_relaxed) == 0) return {};
  const auto* const begin = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  for (const auto& known : entries_) {
    const auto entry = known.lock();
    if (!entry) continue;
    const auto* const part = entry->memory->data() + static_cast<size_t>(rank_) * entry->part_bytes;
    if (begin < part || begin >= part + entry->part_bytes) continue;
    const auto offset = static_cast<size_t>(begin - part);
    if (num_bytes <= entry->part_bytes - offset) return {entry->number, offset};
  }
  return {};
}

std::shared_ptr<std::byte> Regions::hold(int rank, const Place& place, size_t num_bytes) const {
  if (place.region == Place::kInArena) {
    if (!has_arenas()) return nullptr;
    const auto& arena = arenas_[static_cast<size_t>(rank)];
    const bool fits = place.offset <= arena->size() && num_bytes <= arena->size() - place.offset;
    return fits ? std::shared_ptr<std::byte>(arena, arena->data() + place.offset) : nullptr;
  }
  const std::lock_guard lock(mutex_);
  for (const auto& known : entries_) {
    const auto entry = known.lock();
    if (!entry || entry->number != place.region) continue;
    if (place.offset > entry->part_bytes || num_bytes > entry->part_bytes - place.offset) return nullptr;
    return {entry->memory, entry->memory->data() + static_cast<size_t>(rank) * entry->part_bytes + place.offset};
  }
  return nullptr;
}

void Regions::release(void* memory) {
  std::shared_ptr<const void> last;  // unmapped after the lock
  auto& all = owners();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_part.find(memory);
  if (found == all.by_part.end()) return;
  last = std::move(found->second.first);
  all.num_bytes -= found->second.second;
  all.by_part.erase(found);
}

size_t Regions::num_bytes() {
  auto& all = owners();
  const std::lock_guard lock(all.mutex);
  return all.num_bytes;
}

}  // namespace cohort::shm
