/// Process groups: the ranks of a job find each other and form sets that communicate.
///
/// The types are LibTorch's own (c10d::Store, c10d::ProcessGroup). Behavior follows torch/distributed/distributed_c10d.py
/// and torch/distributed/rendezvous.py of PyTorch 2.13: the same store keys and group names, so a C++ rank and a Python
/// rank meet in one group.
///
/// Thread-safety: init, destroy and new_group must not run at the same time as each other or as a query.
#pragma once

#include <c10/util/intrusive_ptr.h>
// Complete types: code that destroys a Group or InitOptions needs them.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort {

/// A set of ranks. Null means the default group, which has every rank (PyTorch's WORLD).
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

struct InitOptions {
  /// "gloo", "nccl", "shm", one per device as in "cpu:gloo,cuda:nccl", or a registered one (backend_registry.h). If empty, the
  /// default of the devices present: "nccl" with CUDA, otherwise "shm" if all ranks can share memory, otherwise "gloo".
  std::string backend = {};
  /// "env://" (default), "tcp://host:port", "file:///path"; rank and world size may follow as "?rank=0&world_size=2".
  std::string init_method = {};
  /// The time that an operation may wait for other ranks. If absent, 30 minutes, or 10 for NCCL, as in PyTorch.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// Set both or neither; they override the environment and the URL.
  int world_size = -1;
  int rank = -1;
  /// If not null, used instead of `init_method`; needs `rank` and `world_size`.
  c10::intrusive_ptr<c10d::Store> store = {};
  /// The accelerator of this process, with its index: lets NCCL connect at once, and groups be split.
  std::optional<c10::Device> device_id = {};
  /// If true, calls use_shared_allocator() first; see cohort/comm/memory/shared_allocator.h. If false, COHORT_SHARED_ALLOCATOR
  /// decides.
  bool shared_allocator = false;
};

/// Creates the default group, and returns it. Collective: every rank must call this.
/// Blocks until all ranks have come, or throws c10::DistStoreError naming the missing ranks.
/// Throws c10::ValueError for missing or malformed settings (the message names the variable), for ranks that contradict
/// each other and for a second call; c10::DistNetworkError if the store cannot be reached or its port is taken.
/// Side effects: unless OMP_NUM_THREADS is set, LibTorch's thread count becomes cores / ranks on this host; SIGPIPE is
/// ignored if it had its default action; errors that end the process are printed with "[rankN]: " before each line.
COHORT_API Group init_process_group(const InitOptions& options = {});
COHORT_API Group init_process_group(const char* backend);

/// Ends `group`, or all groups if it is null. Then init_process_group may be called again (if rank 0 hosts the store, the other
/// ranks wait until it hosts the next one). Throws c10::ValueError for an unknown group.
COHORT_API void destroy_process_group(const Group& group = {});

/// Whether init_process_group has been called, and destroy_process_group not yet.
COHORT_API bool is_initialized();
/// Whether a launcher such as torchrun or `cohort run` started this process.
COHORT_API bool is_torchelastic_launched();

/// Returns this process's rank in `group`; -1 if it is not a member. Throws c10::ValueError before init_process_group.
COHORT_API int get_rank(const Group& group = {});
/// Returns the number of ranks in `group`; -1 if this process is not a member.
COHORT_API int get_world_size(const Group& group = {});
/// Returns the backend as requested, such as "gloo"; if none was named, the chosen one: "shm", "gloo" or "nccl".
COHORT_API std::string get_backend(const Group& group = {});
/// Returns the backend of each device on this rank, such as "cpu:gloo,cuda:gloo".
COHORT_API std::string get_backend_config(const Group& group = {});
/// Returns the number of groups of which this process is a member.
COHORT_API int get_pg_count();
/// Returns how many collectives this rank has begun on `group`, as its engine counts them.
COHORT_API uint64_t get_sequence_number(const Group& group = {});
/// Changes how long operations on `group` may wait, from the next one on (PyTorch's _set_pg_timeout).
/// Throws c10::ValueError unless positive.
COHORT_API void set_pg_timeout(std::chrono::milliseconds timeout, const Group& group = {});
/// Returns the rank within this host, from LOCAL_RANK or a scheduler, otherwise `fallback_rank`. If that is absent, throws
/// c10::Error.
COHORT_API int get_node_local_rank(std::optional<int> fallback_rank = std::nullopt);
/// Convert default-group rank `global_rank` to a rank in `group` and back. Throw c10::ValueError for non-members.
COHORT_API int get_group_rank(const Group& group, int global_rank);
COHORT_API int get_global_rank(const Group& group, int group_rank);
/// Returns the default-group ranks of the members of `group`, in group order.
COHORT_API std::vector<int> get_process_group_ranks(const Group& group = {});

/// Returns the default group. Throws c10::ValueError before init_process_group.
COHORT_API Group default_group();

/// Whether this process is a member: false for the object that new_group and similar functions (subgroups.h) return to ranks
/// outside of the group.
COHORT_API bool is_member(const Group& group);

}  // namespace cohort
