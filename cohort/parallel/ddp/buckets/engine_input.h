/// EngineInput: the data that a gradient engine begins with and its parts share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/parallel/ddp/buckets/bucket_plan.h"
#include "cohort/parallel/ddp/settings/options.h"
#include "cohort/parallel/ddp/settings/reducer_errors.h"

namespace cohort::ddp {

/// The parameters and completed options (group resolved, sparse flags of full length).
struct EngineInput {
  std::vector<at::Tensor> parameters;
  ReducerOptions options;
  Audience audience = Audience::kReducer;
  /// The dtype of gradients, if it is not their parameters': see low_precision.h. Needs a communication hook.
  std::optional<at::ScalarType> gradient_dtype = {};
  BucketCapacity capacity;
  std::vector<ParameterInfo> infos;
  /// The first plan, in the order of reduction: PyTorch plans in parameter order and reverses the list of buckets.
  BucketPlan first_plan;
};

}  // namespace cohort::ddp
