#include "cohort/parallel/fsdp/settings/symm_mem_buffers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <utility>

#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/parallel/fsdp/settings/comm_plugins.h"

namespace cohort::fsdp {
namespace {

// Of each size: one in flight, and one whose values are still in use, for example as a gradient.
constexpr int kNumCopies = 2;

bool has_symm_mem(const Group& group, c10::Device device) {
  if (device.is_cpu()) return comm::has_shared_memory(group);
  return group->getBackend(device.type())->supportsTensorAlloc(device.index());
}

}  // namespace

SymmMemBuffers::SymmMemBuffers(Group group, c10::Device device)
    : group_(std::move(group)), is_ordinary_(device.is_cpu() && comm::shares_tensors(group_)) {
  TORCH_CHECK(has_symm_mem(group_, device), "SymmetricMemory does not find allocation backend ",
              device.is_cpu() ? "shm" : "NCCL");
}

at::Tensor SymmMemBuffers::allocate(int64_t num_elements, const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return allocate_from(group_, num_elements, options);
  const auto num_bytes = num_elements * static_cast<int64_t>(options.dtype().itemsize());
  if (is_ordinary_ || num_bytes == 0) return at::empty({num_elements}, options);
  const at::NoGradGuard no_grad;
  auto& buffers = by_size_[num_bytes];
  if (buffers.empty()) {
    for (int i = 0; i < kNumCopies; ++i) buffers.push_back(comm::shm_empty({num_bytes}, at::kByte, group_));
  }
  for (const auto& buffer : buffers) {
    if (buffer.storage().use_count() == 1) return at::empty({0}, options).set_(buffer.storage(), 0, {num_elements});
  }
  return at::empty({num_elements}, options);
}

}  // namespace cohort::fsdp
