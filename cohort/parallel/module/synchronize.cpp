#include "cohort/parallel/module/synchronize.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace cohort::parallel {
namespace {

constexpr size_t kBroadcastBytes = size_t{250} * 1024 * 1024;

}  // namespace

void verify_same_parameters(const Group& group, const std::vector<at::Tensor>& parameters) {
  c10d::verify_params_across_processes(group, parameters, std::nullopt);
}

void broadcast_from(const Group& group, const std::vector<at::Tensor>& tensors, int source) {
  if (!tensors.empty()) c10d::broadcast_coalesced(group, tensors, kBroadcastBytes, source);
}

}  // namespace cohort::parallel
