/// ProgressTable: the progress of a group's gradients on a host: where they lie, that they are there, and that they have been
/// read. In memory that all ranks of the host map; each word has one writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cohort/shm/memory/common_memory.h"

namespace cohort::fsdp {

/// The place where a rank has put a gradient.
struct GradientPlace {
  enum class Area : uint64_t { kNone, kArena, kStaging };
  Area area = Area::kNone;
  size_t offset = 0;  ///< from the begin of the rank's arena, or of its part of the staging memory
};

/// Ranks post gradients in chunks, several parameters at a time. A rank's passes are numbered from 1.
class ProgressTable {
 public:
  struct Size {
    int world_size = 1;
    size_t num_chunks = 0;
    size_t num_parameters = 0;
    size_t num_bytes() const;
  };
  /// `memory` has size.num_bytes(), zeroed before any rank uses it.
  ProgressTable(shm::SharedMemoryPtr memory, int rank, const Size& size);

  void set_place(size_t parameter, GradientPlace place);
  /// Requires have_all_posted() of its chunk.
  GradientPlace place(int peer, size_t parameter) const;

  /// Says that this rank's gradients of pass `number` are at their places.
  void post(size_t chunk, uint64_t number) { line(rank_, chunk).posted.store(number, std::memory_order_release); }
  bool have_all_posted(size_t chunk, uint64_t number) const;
  /// Says that this rank has read everyone's gradients.
  void note_read(size_t chunk, uint64_t number) { line(rank_, chunk).read.store(number, std::memory_order_release); }
  bool have_all_read(size_t chunk, uint64_t number) const;

 private:
  struct alignas(64) Line {
    std::atomic<uint64_t> posted;
    std::atomic<uint64_t> read;
  };
  Line& line(int rank, size_t chunk) const { return lines_[static_cast<size_t>(rank) * size_.num_chunks + chunk]; }

  shm::SharedMemoryPtr memory_;
  int rank_;
  Size size_;
  Line* lines_;
  std::atomic<uint64_t>* places_;
};

}  // namespace cohort::fsdp
