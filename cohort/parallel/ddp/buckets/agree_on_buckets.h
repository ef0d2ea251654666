/// Makes all ranks fill the same buckets in the same order. The bytes on the wire are those of PyTorch's DDP.
#pragma once

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/ddp/buckets/bucket_plan.h"

namespace cohort::ddp {

/// Returns rank 0's plan, on every rank. Collective.
BucketPlan agree_on_buckets(const Group& group, const BucketPlan& plan, c10::Device device);

}  // namespace cohort::ddp
