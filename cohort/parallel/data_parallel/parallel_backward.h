/// Runs backward through replicas on the CPU, each in a thread of its own.
///
/// Autograd has one thread per accelerator, but runs all of the CPU's backward in the calling thread. So the graphs of the
/// replicas are detached from the graph of the loss: there one node stands for them. It runs each in a thread and passes on the
/// gradients of the replicas' inputs and parameters. Numbers, hooks and higher derivatives are those of the full graph.
///
/// A replica's results must be the only tensors through which the loss depends on it: a loss that also depends on a tensor that
/// forward stored elsewhere needs backward with retain_graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/data_parallel/parallel_apply.h"

namespace cohort::nn::parallel {

using TensorsOfReplica = std::vector<at::Tensor>;

/// Makes backward through `gathered` parallel, on `threads`. `gathered`: all that gather_tensors() made of the replicas' results.
/// `inputs`: for each replica the tensors at which its gradients may end, inputs and parameters. No effect if only one replica
/// works, if a graph ends at another leaf, such as a tensor that is not a registered parameter, if inputs or parameters have
/// hooks in the replica, and for inputs of several histories.
COHORT_API void run_backward_in_parallel(const std::vector<at::Tensor>& gathered,
                                         const std::vector<TensorsOfReplica>& inputs,
                                         std::shared_ptr<ReplicaThreads> threads);

}  // namespace cohort::nn::parallel
