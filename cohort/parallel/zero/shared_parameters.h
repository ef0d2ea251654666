/// SharedParameters: parameters of which a host has one copy, for all ranks of a group: each of them in pages that its owner
/// alone can write, so that what the owner's optimizer has updated needs no broadcast.
///
/// Thread-safety: none. The tensors keep the memory alive, not this object.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::zero {

class SharedParameters {
 public:
  /// True where all ranks of the group map each other's memory, and parameters are in it.
  static bool are_possible(const Group& group, c10::Device device);
  explicit SharedParameters(Group group) : group_(std::move(group)) {}

  /// Collective: moves those of `params` that are not here yet; the values are the owner's. `owner_of`: a rank of the group.
  /// Throws c10::ValueError, on every rank, when one has too little memory.
  void add(const std::vector<at::Tensor>& params, const std::function<int(const at::Tensor&)>& owner_of);

  /// Collective. Before owners write: nobody reads any more. After that: everyone has written.
  void meet() const;

 private:
  Group group_;
  std::unordered_set<const void*> known_;  // their implementations
};

}  // namespace cohort::zero
