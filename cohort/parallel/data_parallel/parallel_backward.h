/// Backward through replicas on the CPU, each in a thread of its own.
///
/// Autograd has one thread per accelerator, but runs all of the CPU's backward in the thread that called it. So the graphs of the
/// replicas are cut off from the graph of the loss: one node stands for them there, which runs each in a thread and hands on what
/// reaches the replicas' inputs and parameters. Numbers, hooks and higher derivatives are those of the whole graph.
///
/// What a replica computes must leave it by its results: a loss that also depends on a tensor that forward put elsewhere needs
/// backward with retain_graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/data_parallel/parallel_apply.h"

namespace cohort::nn::parallel {

using TensorsOfReplica = std::vector<at::Tensor>;

/// Makes backward through `gathered`, all that gather_tensors() made of the replicas' results, parallel, on `threads`. `inputs`:
/// of each replica what its gradients may end at, inputs and parameters. No effect where one replica works alone, where a graph
/// ends at another leaf, such as a tensor that is no registered parameter, where inputs or parameters have hooks in the replica,
/// and for inputs of several histories.
COHORT_API void run_backward_in_parallel(const std::vector<at::Tensor>& gathered,
                                         const std::vector<TensorsOfReplica>& inputs,
                                         std::shared_ptr<ReplicaThreads> threads);

}  // namespace cohort::nn::parallel
