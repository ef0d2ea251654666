/// Zero-copy sends: a rank gives tensors to other ranks of its host without sending them. It says where they lie, and the
/// receiver uses them there until nobody has the tensor any more.
///
/// A tensor in this process's arena (comm/memory/shared_allocator.h) that nobody else here holds is used in place. Any other
/// tensor is copied once, into memory that the ranks of the group share, of which each rank has a part for its sends. So a
/// receiver may also write to a tensor: nobody else has it.
///
/// The sender takes memory back when the receiver's last reference is gone, as a word in shared memory says (one per send, set by
/// the receiver, cleared by the sender). Tensors that are not returned when ZeroCopySends is destroyed are kept until they are.
///
/// Thread-safety: one thread at a time; received tensors may be destroyed in any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/pipeline/transfer/tensor_header.h"
#include "cohort/shm/arena/free_ranges.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::pipeline {

/// Where a tensor is, in the form in which the receiver gets it.
struct TensorLocation {
  enum class Area : int64_t { kNone, kArena, kCommon };
  Area area = Area::kNone;  ///< kNone: there was no space, the tensor itself is sent
  int64_t offset = 0;       ///< from the begin of the sender's arena, or of its part
  int64_t slot = 0;         ///< of the word that says that the tensor has been returned

  static constexpr int64_t kLength = 3;
  COHORT_TEST_API at::Tensor tensor() const;
  COHORT_TEST_API static TensorLocation read(const at::Tensor& tensor);
};

class ZeroCopySends {
 public:
  /// The number of simultaneous sends between two ranks.
  static constexpr int kNumSlots = 128;

  /// Whether ranks of `group` can send without a copy. The same on all of them.
  static bool are_possible(const Group& group, int group_size);
  /// Whether a zero-copy send of the tensor is worth it. Smaller ones are as fast through the group's channel.
  static bool suits(size_t num_bytes, const c10::Device& device) { return device.is_cpu() && num_bytes >= kLeastBytes; }
  /// The number of bytes that a tensor takes in a part.
  static size_t part_bytes_of(size_t num_bytes) { return shm::whole_pages(num_bytes); }

  /// Collective, with the same `part_bytes`: the size of each rank's memory for tensors that have to be
  /// copied. Requires are_possible(). Throws c10::ValueError, on every rank, if one has too little memory.
  COHORT_TEST_API ZeroCopySends(const Group& group, size_t part_bytes);
  COHORT_TEST_API ~ZeroCopySends();
  ZeroCopySends(const ZeroCopySends&) = delete;
  ZeroCopySends& operator=(const ZeroCopySends&) = delete;

  /// Requires: suits(). Returns the location for rank `receiver` of the group, which must call receive() with it.
  COHORT_TEST_API TensorLocation send(const at::Tensor& tensor, int receiver);
  /// Requires: the location, which rank `sender` has made, is not of kNone. Throws c10::DistBackendError for an invalid location.
  COHORT_TEST_API at::Tensor receive(const TensorLocation& location, const TensorMeta& meta, int sender) const;
  /// Takes back returned tensors. send() also does so.
  COHORT_TEST_API void take_back();
  /// The number of sends that have not been taken back.
  size_t num_pending() const { return pending_.size(); }

  struct Word;
  /// A send, as its sender keeps it.
  struct Send {
    Word* word = nullptr;
    int receiver = 0;
    int slot = 0;
    at::Tensor tensor;       ///< of the arena
    shm::Extent block = {};  ///< or of this rank's part
  };

 private:
  static constexpr size_t kLeastBytes = size_t{16} << 10;

  Word* word(int sender, int receiver, int slot) const;
  std::byte* part(int rank) const;

  pid_t owner_ = ::getpid();
  int rank_, group_size_;
  size_t part_bytes_;
  shm::SharedMemoryPtr memory_;               ///< the words, then the ranks' parts
  std::vector<shm::SharedMemoryPtr> arenas_;  ///< by rank; may be empty
  shm::FreeRanges free_;                      ///< of this rank's part
  std::vector<std::vector<int>> free_slots_;  ///< by receiver
  std::vector<Send> pending_;
};

}  // namespace cohort::pipeline
