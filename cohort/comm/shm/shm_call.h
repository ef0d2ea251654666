/// ShmCall: one call of an operation of the backend "shm". Cheap to make; texts are made only if something goes wrong.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/comm/call/purpose.h"
#include "cohort/job/operation.h"

namespace cohort::comm {

/// Properties that all calls of one kind have in common. Static.
struct ShmOperation {
  const char* name;   ///< "all_reduce"
  const char* title;  ///< name of the profiler's span
  c10d::OpType type;
  bool is_point_to_point = false;
  /// False if shapes may differ between ranks.
  bool shows_shapes = true;
};

struct ShmCall {
  const ShmOperation* operation;
  uint64_t sequence = 0;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  int root = -1;  ///< of a send or receive, the peer
  int tag = 0;
  c10d::ReduceOp::RedOpType reduce_op = c10d::ReduceOp::UNUSED;
  const void* call_site = nullptr;
  const Purpose* purpose = nullptr;  ///< if null, the program's own call
};

/// This rank and its group, for texts.
struct ShmIdentity {
  std::string group;
  std::string host;
  int rank = 0;
  int world_size = 1;
};

/// `shown`: the tensors whose sizes and shapes the text states.
job::Operation describe(const ShmCall& call, at::TensorList shown, const ShmIdentity& identity);

}  // namespace cohort::comm
