/// The arguments that every backend is made from, by `make_<name>_backend(request)` in the backend's folder.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cohort::base {
struct Failure;
}

namespace cohort::comm {

class OperationWatch;

struct BackendRequest {
  /// Already prefixed with the device, as in Python: the backend's keys start here.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout;
  /// The name in errors and logs: "default_pg", or the group's description.
  std::string group_name;
  /// Default-group ranks of the members; empty for the default group, as in PyTorch.
  std::vector<uint64_t> global_ranks;
  /// Follows the operations and turns the engine's exceptions into ours. If null, they pass unchanged.
  std::shared_ptr<OperationWatch> watch;
  /// The accelerator this rank was bound to by InitOptions::device_id.
  std::optional<c10::Device> device_id;
  /// c10d's name of the group, such as "0". If empty, it is `group_name`.
  std::string c10d_name = {};
  /// The number of default groups that these ranks have created with this store, including this one: keys of earlier ones may
  /// still exist.
  int start_count = 0;
  /// Process ids of the members. Empty if they are not known.
  std::vector<int> pids = {};
  /// Reasons why the members cannot share memory, one line each (shm_choice.h). Empty if no reason is known.
  std::vector<std::string> shm_obstacles = {};
  /// Finds out which members are the reason if an engine cannot connect. `cause`: the engine's words, and whether the timeout
  /// has passed. If null, the engine's exception passes unchanged.
  std::function<base::Failure(const base::Failure& cause)> explain_failed_connect = {};
};

}  // namespace cohort::comm
