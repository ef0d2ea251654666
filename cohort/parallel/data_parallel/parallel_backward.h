/// Backward through replicas on the CPU, each in a thread of its own.
///
/// Autograd has one thread per accelerator, but runs all of the CPU's backward in the thread that called it. So the graphs of the
/// replicas are cut off from the graph of the loss: one node stands for them there, which runs each in a thread and hands on what
/// reaches the replicas' inputs and parameters. Numbers, hooks and higher derivatives are those of the whole graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/data_parallel/parallel_apply.h"

namespace cohort::nn::parallel {

/// What gradients of one replica's pass begin and end at.
struct ReplicaPass {
  std::vector<at::Tensor> outputs;
  /// Inputs and parameters.
  std::vector<at::Tensor> inputs;
};

/// Makes backward through these passes parallel, on `threads`. No effect where one replica works alone, and where a graph ends at
/// another leaf than at `inputs`, such as a tensor that is no registered parameter.
COHORT_API void run_backward_in_parallel(const std::vector<ReplicaPass>& passes,
                                         std::shared_ptr<ReplicaThreads> threads);

}  // namespace cohort::nn::parallel
