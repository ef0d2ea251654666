/// GradientEngine: the interface behind ddp::Reducer. Three engines implement it (see ddp::Engine).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "cohort/parallel/ddp/bucket_plan.h"
#include "cohort/parallel/ddp/options.h"
#include "cohort/parallel/ddp/reducer_errors.h"

namespace cohort::ddp {

/// The methods are those of ddp::Reducer.
class GradientEngine {
 public:
  virtual ~GradientEngine() = default;
  virtual void prepare_forward() = 0;
  virtual void prepare(const std::vector<at::Tensor>& outputs) = 0;
  virtual void finalize() = 0;
  virtual BucketPlan buckets() const = 0;
  virtual bool has_rebuilt_buckets() const = 0;
};

/// What the engines share: parameters and settled options (group resolved, sparse flags of full length).
struct EngineInput {
  std::vector<at::Tensor> parameters;
  ReducerOptions options;
  Reader reader = Reader::kReducer;
  BucketCapacity capacity;
  std::vector<ParameterInfo> infos;
  /// First plan, in the order of reduction: PyTorch plans in parameter order and reverses the list of buckets.
  BucketPlan first_plan;
};

std::unique_ptr<GradientEngine> make_overlap_engine(EngineInput input);
std::unique_ptr<GradientEngine> make_inline_engine(EngineInput input);
std::unique_ptr<GradientEngine> make_c10d_engine(EngineInput input);

}  // namespace cohort::ddp
