#include "cohort/parallel/fsdp/host/progress_table.h"

#include <utility>

namespace cohort::fsdp {
namespace {

constexpr int kAreaShift = 62;
constexpr uint64_t kOffsetBits = (uint64_t{1} << kAreaShift) - 1;

}  // namespace

size_t ProgressTable::Size::num_bytes() const {
  return static_cast<size_t>(world_size) * (num_chunks * sizeof(Line) + num_parameters * sizeof(std::atomic<uint64_t>));
}

ProgressTable::ProgressTable(shm::SharedMemoryPtr memory, int rank, const Size& size)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(size),
      lines_(reinterpret_cast<Line*>(memory_->data())),
      places_(
          reinterpret_cast<std::atomic<uint64_t>*>(lines_ + static_cast<size_t>(size.world_size) * size.num_chunks)) {}

void ProgressTable::set_place(size_t parameter, GradientPlace place) {
  const auto word = static_cast<uint64_t>(place.area) << kAreaShift | place.offset;
  places_[static_cast<size_t>(rank_) * size_.num_parameters + parameter].store(word, std::memory_order_relaxed);
}

GradientPlace ProgressTable::place(int peer, size_t parameter) const {
  const auto& entry = places_[static_cast<size_t>(peer) * size_.num_parameters + parameter];
  const auto word = entry.load(std::memory_order_relaxed);
  return {static_cast<GradientPlace::Area>(word >> kAreaShift), word & kOffsetBits};
}

bool ProgressTable::have_all_posted(size_t chunk, uint64_t number) const {
  for (int peer = 0; peer < size_.world_size; ++peer) {
    if (line(peer, chunk).posted.load(std::memory_order_acquire) < number) return false;
  }
  return true;
}

bool ProgressTable::have_all_read(size_t chunk, uint64_t number) const {
  for (int peer = 0; peer < size_.world_size; ++peer) {
    if (line(peer, chunk).read.load(std::memory_order_acquire) < number) return false;
  }
  return true;
}

}  // namespace cohort::fsdp
