/// Sends and receives between two ranks, with PyTorch's names, arguments and defaults
/// (torch/distributed/distributed_c10d.py). Errors and threads as in collectives.h; operations between the same two ranks
/// meet in the order they were called, per tag.
#pragma once

#include <optional>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort {

struct PointToPointOptions {
  Group group = {};
  int tag = 0;
};

/// Blocks until `dst` has taken the tensor. Throws c10::ValueError when `dst` is this rank.
COHORT_API void send(const at::Tensor& tensor, RankArgument dst, const PointToPointOptions& options = {});
/// Blocks until a tensor has come from `src` (any rank if absent).
/// Returns: the sender's rank in the default group; -1 outside the group.
COHORT_API int recv(const at::Tensor& tensor, std::optional<RankArgument> src = std::nullopt,
                    const PointToPointOptions& options = {});
COHORT_API WorkPtr isend(const at::Tensor& tensor, RankArgument dst, const PointToPointOptions& options = {});
COHORT_API WorkPtr irecv(const at::Tensor& tensor, std::optional<RankArgument> src = std::nullopt,
                         const PointToPointOptions& options = {});

/// One operation of batch_isend_irecv.
struct P2POp {
  enum class Kind { kSend, kReceive };
  Kind kind;
  at::Tensor tensor;
  RankArgument peer;
  Group group = {};
  int tag = 0;

  static P2POp isend(at::Tensor tensor, RankArgument peer, const PointToPointOptions& options = {}) {
    return {Kind::kSend, std::move(tensor), peer, options.group, options.tag};
  }
  static P2POp irecv(at::Tensor tensor, RankArgument peer, const PointToPointOptions& options = {}) {
    return {Kind::kReceive, std::move(tensor), peer, options.group, options.tag};
  }
};

/// Starts all operations of the list, which must belong to one group; where the engine can, as one.
/// Returns: the Works to wait for, in the order of the list (one for all where the engine merges them).
/// Throws c10::ValueError for an empty list or several groups.
COHORT_API std::vector<WorkPtr> batch_isend_irecv(const std::vector<P2POp>& operations);

}  // namespace cohort
