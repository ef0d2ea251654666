/// BackendMaker: makes the backends of a group, both for Cohort's own groups (group_creation.h) and for groups that other
/// libraries build (join_backend.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/comm/group/world.h"
#include "cohort/comm/registry/cohort_backend.h"

namespace cohort::comm {

/// This process as a member of the group.
struct Membership {
  int rank = 0;
  /// Default-group ranks of the members; empty for the default group, as in PyTorch.
  std::vector<uint64_t> global_ranks;
  std::optional<c10::Device> device_id;
  /// The ranks have made a membership check: a rank that cannot go on withdraws from it.
  bool has_called_roll = false;
  /// The option that raises the timeout, for texts.
  std::string timeout_option;
  /// TORCH_DISTRIBUTED_DEBUG=DETAIL: compares collectives over a helper group first, as PyTorch does.
  bool wraps_for_debugging = false;
};

class BackendMaker {
 public:
  /// `record`: complete except for the group; must outlive the maker.
  /// Throws c10::ValueError for a backend that the members cannot use.
  BackendMaker(const GroupRecord& record, std::shared_ptr<const Roster> roster, Membership own);

  /// Makes a backend. Collective over the group, as choose_cpu. `store`: the group's store with a prefix for the device, such as
  /// "cpu/". Throws what the backend throws; if the backend only says that it did not connect, c10::DistBackendError with the
  /// reason.
  c10::intrusive_ptr<c10d::Backend> make(const std::string& backend, const c10::intrusive_ptr<c10d::Store>& store);
  /// Chooses and makes the best backend for CPU tensors (cohort_backend.h).
  CpuBackend choose_cpu(const c10::intrusive_ptr<c10d::Store>& store);

 private:
  BackendRequest request(const c10::intrusive_ptr<c10d::Store>& store) const;
  std::function<base::Failure(const base::Failure&)> explainer() const;
  c10::intrusive_ptr<c10d::Backend> wrap(c10::intrusive_ptr<c10d::Backend> backend,
                                         const c10::intrusive_ptr<c10d::Store>& store) const;
  template <class Make>
  auto leaving_on_failure(Make make) const;

  const GroupRecord& record_;
  const std::shared_ptr<const Roster> roster_;
  const Membership own_;
  const std::vector<std::string> shm_obstacles_;
};

}  // namespace cohort::comm
