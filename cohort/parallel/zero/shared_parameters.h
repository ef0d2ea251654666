/// SharedParameters: parameters of which a host has one copy, for all ranks of a group. Only the owner can write the pages of a
/// parameter, so the owner's updates need no broadcast.
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
  /// True if all ranks of the group map each other's memory, and parameters are in it.
  static bool are_possible(const Group& group, c10::Device device);
  explicit SharedParameters(Group group) : group_(std::move(group)) {}

  /// Moves those of `params` that are not here yet; the values are the owner's. `owner_of`: returns a rank of the group.
  /// Collective. Throws c10::ValueError, on every rank, if one has too little memory.
  void add(const std::vector<at::Tensor>& params, const std::function<int(const at::Tensor&)>& owner_of);

  /// Before owners write: waits until nobody reads any more. After that: waits until everyone has written. Collective.
  void meet() const;

 private:
  Group group_;
  std::unordered_set<const void*> known_;  // their implementations
};

}  // namespace cohort::zero
