/// A stage's backward: at once, or in two parts, of which the first computes the gradients that the stage before waits for.
///
/// As torch/distributed/pipelining/_backward.py. The *trunk* is the part of the autograd graph that depends on the stage's
/// inputs. The first part goes back along the trunk and notes the gradients that reach the nodes at which parameters join it; the
/// second part begins there and goes on to the parameters.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort::pipeline {

/// The state from which the second part begins.
struct JoinedNode;
struct WeightPart {
  struct Group {
    std::vector<std::shared_ptr<JoinedNode>> joints;
    std::vector<torch::autograd::Edge> parameters;  ///< accumulators
  };
  std::vector<Group> groups;
};

/// Runs backward from outputs that require gradients. `output_grads`: one for each output, where undefined ones mean zeros; if
/// empty, ones, for an output that is a loss. Accumulates parameters' gradients; returns those of `inputs`, undefined if there is
/// none.
COHORT_TEST_API TensorList full_backward(const TensorList& outputs, const TensorList& output_grads,
                                         const TensorList& inputs);

/// Computes only the gradients of `inputs` (leaves). Also accumulates the gradients of parameters that do not depend on the
/// inputs; `part` is for the others. Detaches the outputs: the graph above the trunk is not needed any more.
COHORT_TEST_API TensorList backward_input(const TensorList& outputs, const TensorList& output_grads,
                                          const TensorList& inputs, const TensorList& parameters, WeightPart* part);

/// Accumulates the parameters' gradients and frees the graph.
COHORT_TEST_API void backward_weight(WeightPart part);

}  // namespace cohort::pipeline
