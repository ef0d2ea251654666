/// From what is computed to all that a rank does: communication, sharded stages' parameters, the reduction of gradients. As
/// _add_unshard_reshard, _add_reduce_grad, _add_send_recv and _defer_recv_ops of torch/distributed/pipelining/schedules.py;
/// RESHARDs that stand side by side are in ascending order (Python's in that of its sets).
#pragma once

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

/// One rank's list with REDUCE_GRAD after the last backward of each stage, and without idle steps.
ActionList add_reduce_grad(const ActionList& list, int num_microbatches);

/// One rank's list with UNSHARD before a stage is needed, ahead of time for the next `max_active_stages` stages, and RESHARD when
/// it is not among these; without idle steps.
ActionList add_unshard_reshard(const ActionList& list, int max_active_stages = 3);

/// All ranks' lists with sends right behind what is sent, and receives wherever their sender has come so far: so all pairs of
/// ranks send and receive in the same order. Neighbouring stages of one rank need neither. Fails for lists that nothing can be
/// added to, with what each rank waits for.
base::Result<PipelineOrder> add_send_receive(const PipelineOrder& order, const StageRanks& stage_ranks);

/// Receives as late as they can be without a deadlock: for devices on which a pending receive blocks what comes after it. Where
/// Python's list would take messages of a rank in another order than they are sent in, this one does not. Fails for a receive
/// that nothing needs. Requires a list that validate_communication() accepts.
base::Result<PipelineOrder> defer_receives(const PipelineOrder& order, const StageRanks& stage_ranks);

/// One rank's list for an engine that runs the parts of an overlapped action one after the other: each part's result is sent
/// before the next part begins, where messages keep their order.
ActionList without_overlaps(const ActionList& list, const StageRanks& stage_ranks);

/// All of it: what runs of what is computed.
base::Result<PipelineOrder> add_communication(const PipelineOrder& order, const StageRanks& stage_ranks,
                                              int num_microbatches);

}  // namespace cohort::pipeline
