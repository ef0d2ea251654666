/// What every backend is made from; `make_<name>_backend(request)` stands in the header of each backend's folder.
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
  /// Already prefixed with the device, as Python does: the backend's keys start here.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout;
  /// As people see it: "default_pg", or the group's description.
  std::string group_name;
  /// Default-group ranks of the members; empty for the default group, as in PyTorch.
  std::vector<uint64_t> global_ranks;
  /// Follows the operations and turns the engine's exceptions into ours; null: they pass unchanged.
  std::shared_ptr<OperationWatch> watch;
  /// The accelerator this rank was bound to by InitOptions::device_id.
  std::optional<c10::Device> device_id;
  /// The name by which c10d knows the group, "0"; empty: `group_name`.
  std::string c10d_name = {};
  /// How often these ranks have created a default group with this store, this time included: keys of an earlier time may
  /// still be there.
  int start_count = 0;
  /// Process ids of the members; empty where they are not known.
  std::vector<int> pids = {};
  /// Why the members cannot share memory, one line each (shm_choice.h); empty: nothing is known against it.
  std::vector<std::string> shm_obstacles = {};
  /// Of an engine that could not connect: finds out which members are the reason. `cause`: the engine's words, and whether the
  /// time was over. Null: the engine's exception passes unchanged.
  std::function<base::Failure(const base::Failure& cause)> explain_failed_connect = {};
};

}  // namespace cohort::comm
