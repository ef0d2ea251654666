/// ReplicaSum: sums of one dtype that hosts have found for the same shards, added up over the hosts by one all-reduce. Of each
/// part the hosts tell each other whether they have one: one that no host has used has no gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "cohort/comm/collectives/collectives.h"

namespace cohort::fsdp {

class ReplicaSum {
 public:
  struct Part {
    size_t index;  ///< of the parameter
    at::IntArrayRef sizes;
    c10::ScalarType dtype;
    at::Tensor sum;  ///< of this host; undefined: nobody of it has used the parameter
  };
  /// Starts. Collective.
  ReplicaSum(std::vector<Part> parts, const Group& replica_group);
  /// Calls `give` for each part that some host has.
  void wait(const std::function<void(size_t index, at::Tensor sum)>& give);

 private:
  std::vector<Part> parts_;
  at::Tensor flat_;
  WorkPtr work_;
};

/// Each list of one dtype.
std::vector<std::vector<ReplicaSum::Part>> by_dtype(std::vector<ReplicaSum::Part> parts);

}  // namespace cohort::fsdp
