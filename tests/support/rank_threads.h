/// Runs a test's ranks as threads of this process, each with a Gloo group of its own over one in-memory store.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>

#include "cohort/comm/process_group.h"

namespace cohort::test {

/// Calls fn(rank, group) on `world_size` threads. The first exception is thrown again, with its rank before it.
void run_rank_threads(int world_size, const std::function<void(int, const Group&)>& fn,
                      std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace cohort::test
