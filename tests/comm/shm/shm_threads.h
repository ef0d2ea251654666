/// Ranks as threads on the backend "shm".
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "tests/support/rank_threads.h"

namespace cohort::test {

inline void run_shm_threads(int world_size, const std::function<void(int, const Group&, c10d::Backend&)>& fn) {
  run_rank_threads(world_size,
                   [&](int rank, const Group& group) { fn(rank, group, *group->getBackend(c10::DeviceType::CPU)); },
                   {.make_backend = comm::make_shm_backend});
}

enum class Mode { kSync, kAsync };

inline WorkPtr reduce_on(c10d::Backend& backend, std::vector<at::Tensor> tensors, Mode mode = Mode::kSync,
                         ReduceOp op = ReduceOp::SUM) {
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  options.asyncOp = mode == Mode::kAsync;
  return backend.allreduce(tensors, options);
}

/// The text of the error of type `Error` that `fn` ends with.
template <class Error = c10::Error, class Fn>
std::string text_of_error(Fn fn) {
  try {
    fn();
    return "(no error)";
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
}

}  // namespace cohort::test
