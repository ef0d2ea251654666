/// A stage's backward: at once, or in two parts, of which the first gives what the stage before waits for.
///
/// As torch/distributed/pipelining/_backward.py. Vocabulary: the *trunk* is the part of the autograd graph that depends on the
/// stage's inputs. The first part goes back along it and notes the gradients that reach the nodes at which parameters join it;
/// the second part begins there and goes on to the parameters.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort::pipeline {

/// What the second part begins with.
struct JoinedNode;
struct WeightPart {
  struct Group {
    std::vector<std::shared_ptr<JoinedNode>> joints;
    std::vector<torch::autograd::Edge> parameters;  ///< accumulators
  };
  std::vector<Group> groups;
};

/// Of outputs that require gradients. `output_grads`: one for each output, of which undefined ones stand for zeros; none at all,
/// where the output is a loss, for ones. Parameters' gradients are accumulated; returns those of `inputs`, undefined where there
/// is none.
COHORT_TEST_API TensorList full_backward(const TensorList& outputs, const TensorList& output_grads,
                                         const TensorList& inputs);

/// The gradients of `inputs` (leaves) alone. Those of parameters that the inputs have no part in are accumulated already; `part`
/// is for the others. The outputs are detached: nobody needs the graph above the trunk any more.
COHORT_TEST_API TensorList backward_input(const TensorList& outputs, const TensorList& output_grads,
                                          const TensorList& inputs, const TensorList& parameters, WeightPart* part);

/// Accumulates the parameters' gradients and lets go of the graph.
COHORT_TEST_API void backward_weight(WeightPart part);

}  // namespace cohort::pipeline
