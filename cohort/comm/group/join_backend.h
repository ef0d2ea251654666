/// Backends for groups that other libraries build, such as Python's torch.distributed. Does for one backend of such a group
/// what init_process_group and new_group do (membership check, choice, explanations), without a group of Cohort's own. C++ ranks
/// that make the group with those functions take part.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace c10d {
class Backend;
}

namespace cohort::comm {

/// Returns the names of the backends that can be joined, each with the devices it serves, such as "cpu".
COHORT_BINDING_API std::map<std::string, std::vector<std::string>> joinable_backends();

struct JoinRequest {
  std::string backend;  ///< one of joinable_backends()
  /// The store that PyTorch gives to a backend: the group's store with a prefix for the device, such as "cpu/". A store without
  /// such a prefix is the group's own.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout;
  std::string group_name;  ///< PyTorch's name, such as "0"
  /// Default-group ranks of the members. Empty for the default group, and for a group that a program builds by hand.
  std::vector<int> global_ranks;
};

/// Collective: every rank of the group must call this. Blocks until all have come.
/// Returns: a new backend for all devices. Nothing else keeps it alive: it leaves the group when its last owner releases it.
/// Throws c10::ValueError for ranks that can never work together, c10::DistStoreError naming missing ranks,
/// c10::DistBackendError if connecting fails.
/// Thread-safety: threads may join different groups at the same time.
COHORT_BINDING_API c10::intrusive_ptr<c10d::Backend> join_backend(const JoinRequest& request);
/// Warns, at the end of a program that has joined groups, of Works that nobody waited for.
COHORT_BINDING_API void warn_of_unawaited_in_joined();

}  // namespace cohort::comm
