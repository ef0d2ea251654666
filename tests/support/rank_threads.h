/// Runs a test's ranks as threads of this process, each with a group of its own over one in-memory store.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>
#include <string>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::test {

/// The backend of tests that run on each: --backend=gloo or shm, which main() puts into COHORT_TEST_BACKEND so that ranks that
/// are processes have it too; Gloo where nothing is said.
std::string backend_of_tests();

using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(const comm::BackendRequest&)>;

struct RankThreadsOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// Default: backend_of_tests().
  MakeBackend make_backend = {};
};

/// Calls fn(rank, group) on `world_size` threads. The first exception is thrown again, with its rank before it.
void run_rank_threads(int world_size, const std::function<void(int, const Group&)>& fn,
                      const RankThreadsOptions& options = {});

}  // namespace cohort::test
