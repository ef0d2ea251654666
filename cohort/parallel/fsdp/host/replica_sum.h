/// ReplicaSum: sums over hosts the sums of one dtype that each host has computed for the same shards, with one all-reduce. Hosts
/// also exchange for each part whether they have a sum: a parameter that no host has used has no gradient.
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
    at::Tensor sum;  ///< of this host; undefined if no rank of it has used the parameter
  };
  /// Starts the sum. Collective.
  ReplicaSum(std::vector<Part> parts, const Group& replica_group);
  /// Calls `give` for each part that at least one host has.
  void wait(const std::function<void(size_t index, at::Tensor sum)>& give);

 private:
  std::vector<Part> parts_;
  at::Tensor flat_;
  WorkPtr work_;
};

/// Splits the parts into lists of one dtype each.
std::vector<std::vector<ReplicaSum::Part>> by_dtype(std::vector<ReplicaSum::Part> parts);

}  // namespace cohort::fsdp
