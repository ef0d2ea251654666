/// Snapshot: a copy of a state that a thread writes to disk while training changes the state. Its memory is kept from copy to
/// copy, so that only the first one waits for the kernel to give it.
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

  /// Copies tensors, whatever device they are on, and plain values, in place of what was there. Throws c10::Error when there is
  /// no memory.
  void take(const ShardedStateDict& state);
  /// Tensors are on the CPU, their elements row by row; the next take() writes over them.
  const ShardedStateDict& state() const { return copy_; }

 private:
  void reserve(size_t num_bytes);

  char* memory_ = nullptr;
  size_t capacity_ = 0;
  ShardedStateDict copy_;
};

}  // namespace cohort::checkpoint::detail
