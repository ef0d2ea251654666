/// One operation of a group with known tensors, every result checked. Used by tests of the operations and by the stress.
#pragma once

#include <cstddef>

#include "cohort/shm/engine/group.h"

namespace cohort::shm {

struct Case {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kFloat32;  ///< float32, int64 or uint8
  ReduceOp op = ReduceOp::kSum;
  size_t count = 0;  ///< elements per rank's part
  int root = 0;
  int salt = 0;
  bool in_place = false;
  /// Tensors in memory of allocate(), if set: at least world_size * count elements for input and as much for output.
  std::byte* shared = nullptr;
  size_t shared_bytes = 0;
  /// Wrong data on purpose, to see that the check sees them: those of this rank (-1: of its own), from this element on.
  int data_rank = -1;
  size_t data_shift = 0;
};

/// Returns the failure, or null; a wrong result is a test failure.
/// Collective: every rank with an equal case (but for `in_place` and `shared`).
Outcome run_case(Group& group, const Case& test_case);

}  // namespace cohort::shm
