/// Snapshot: a copy of a state that a thread writes to disk while training changes the state. It reuses its memory from copy to
/// copy, so that only the first one waits for the kernel to provide it.
#pragma once

#include <cstddef>

#include "cohort/checkpoint/state/state_value.h"

namespace cohort::checkpoint::detail {

class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot();

  /// Copies tensors, from any device, and plain values, over the previous copy. Throws c10::Error if there is not enough
  /// memory.
  void take(const ShardedStateDict& state);
  /// Returns the copy. Tensors are on the CPU, row by row; the next take() overwrites them.
  const ShardedStateDict& state() const { return copy_; }

 private:
  void reserve(size_t num_bytes);

  char* memory_ = nullptr;
  size_t capacity_ = 0;
  ShardedStateDict copy_;
};

}  // namespace cohort::checkpoint::detail
