/// Sends and receives between two ranks, with PyTorch's names, arguments and defaults
/// (torch/distributed/distributed_c10d.py). Errors and threads as in collectives.h. Operations between the same two ranks
/// with the same tag are matched in the order of the calls.
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

/// Blocks until `dst` has received the tensor. Throws c10::ValueError if `dst` is this rank.
COHORT_API void send(const at::Tensor& tensor, RankArgument dst, const PointToPointOptions& options = {});
/// Blocks until a tensor has come from `src`. If `src` is absent, receives from any rank.
/// Returns: the sender's rank in the default group; -1 outside of the group.
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

/// Starts all operations of the list, which must belong to one group; engines that can merge them start one operation.
/// Returns: the Works to wait for, in the order of the list, or one Work for all of them if the engine merges them.
/// Throws c10::ValueError for an empty list or several groups.
COHORT_API std::vector<WorkPtr> batch_isend_irecv(const std::vector<P2POp>& operations);

}  // namespace cohort
