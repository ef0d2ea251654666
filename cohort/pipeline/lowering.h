/// Adds to lists of computations all other actions of a rank: communication, gathering of sharded parameters, the reduction of
/// gradients. Follows _add_unshard_reshard, _add_reduce_grad, _add_send_recv and _defer_recv_ops of
/// torch/distributed/pipelining/schedules.py, except that consecutive RESHARDs are in ascending order (Python's are in the order
/// of its sets).
#pragma once

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

/// Adds REDUCE_GRAD to one rank's list after the last backward of each stage, and removes idle steps.
ActionList add_reduce_grad(const ActionList& list, int num_microbatches);

/// Adds UNSHARD to one rank's list before a stage is needed, ahead of time for the next `max_active_stages` stages, and RESHARD
/// when a stage is not among these; removes idle steps.
ActionList add_unshard_reshard(const ActionList& list, int max_active_stages = 3);

/// Adds sends and receives to all ranks' lists: each send right behind the action whose result it sends, each receive when its
/// sender has reached the send. So each pair of ranks sends and receives in the same order. Adjacent stages on one rank need
/// neither. Fails for lists that cannot be completed, and says what each rank waits for.
base::Result<PipelineOrder> add_send_receive(const PipelineOrder& order, const StageRanks& stage_ranks);

/// Moves receives as late as possible without a deadlock, for devices on which a pending receive blocks what follows it. Python's
/// version may receive a rank's messages in another order than they are sent; this one does not. Fails for a receive that no
/// action needs. Requires a list that validate_communication() accepts.
base::Result<PipelineOrder> defer_receives(const PipelineOrder& order, const StageRanks& stage_ranks);

/// Returns one rank's list for an engine that runs the parts of an overlapped action one after the other. Each part's result is
/// sent before the next part begins, if messages keep their order.
ActionList without_overlaps(const ActionList& list, const StageRanks& stage_ranks);

/// Applies all of these functions to lists of computations.
base::Result<PipelineOrder> add_communication(const PipelineOrder& order, const StageRanks& stage_ranks,
                                              int num_microbatches);

}  // namespace cohort::pipeline
