/// What all ranks must agree on before and between steps: parameter shapes, starting values, bucket order.
/// Collective throughout. The bytes on the wire are those of PyTorch's DDP, so C++ and Python ranks may share a job.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/ddp/bucket_plan.h"

namespace cohort::ddp {

/// Throws c10::Error on every rank that differs from rank 0 in number, sizes or strides of its parameters.
void verify_same_parameters(const Group& group, const std::vector<at::Tensor>& parameters);

/// Every rank's tensors become rank 0's, in pieces of at most 250 MiB.
void broadcast_from_first(const Group& group, const std::vector<at::Tensor>& tensors);

/// Every rank's plan becomes rank 0's.
BucketPlan agree_on_buckets(const Group& group, const BucketPlan& plan, c10::Device device);

}  // namespace cohort::ddp
