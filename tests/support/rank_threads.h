/// Runs a test's ranks as threads of this process, each with a group of its own over one in-memory store.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::test {

/// The backend of tests that could run on each: --backend=gloo or shm, which main() puts into COHORT_TEST_BACKEND so that ranks
/// that are processes have it too; shm, the users' default, unless given. Marks say who needs what (marks.h).
std::string backend_of_tests();

using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(const comm::BackendRequest&)>;

struct RankThreadsOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(100);
  /// Default: backend_of_tests().
  MakeBackend make_backend = {};
};

/// Calls fn(rank, group) on `world_size` threads. The first exception is thrown again, with its rank before it. No rank leaves a
/// group before all have come back, unless it throws.
void run_rank_threads(int world_size, const std::function<void(int, const Group&)>& fn,
                      const RankThreadsOptions& options = {});

/// The group of the list that this rank of `group` is in, as split_group() makes it of registered groups. Call it on all ranks.
Group split_rank_threads(const Group& group, const std::vector<std::vector<int>>& lists);

}  // namespace cohort::test
