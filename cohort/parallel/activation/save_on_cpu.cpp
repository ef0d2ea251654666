#include "cohort/parallel/activation/save_on_cpu.h"

#include <ATen/ops/empty_like.h>

#include "cohort/comm/backend/accelerator.h"

namespace cohort {
namespace {

at::Tensor copy_on_cpu(const at::Tensor& tensor, bool pin_memory) {
  if (!pin_memory) return tensor.cpu();
  const bool is_pinnable = !tensor.is_sparse() && comm::accelerator_type().has_value();
  // Keeps the strides, so that backward runs the same kernels on it.
  at::Tensor copy = at::empty_like(tensor, tensor.options().device(at::kCPU).pinned_memory(is_pinnable));
  copy.copy_(tensor, /*non_blocking=*/is_pinnable);
  return copy;
}

}  // namespace

SaveOnCpu::SaveOnCpu(const SaveOnCpuOptions& options)
    : hooks_([pin_memory = options.pin_memory](const at::Tensor& saved) -> UnpackHook {
        return [copy = copy_on_cpu(saved.detach(), pin_memory), device = saved.device(), pin_memory] {
          return copy.to(device, copy.scalar_type(), /*non_blocking=*/pin_memory);
        };
      }) {}

}  // namespace cohort
