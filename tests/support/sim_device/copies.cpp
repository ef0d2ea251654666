#include "tests/support/sim_device/copies.h"

#include <ATen/ops/from_blob.h>

#include "tests/support/sim_device/memory.h"
#include "tests/support/sim_device/pinned_memory.h"
#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

Mark push_copy(Queue& queue, const at::Tensor& source, const at::Tensor& destination) {
  return {&queue, queue.push([source, destination] { destination.copy_(source); })};
}

bool is_on_device(const at::Tensor& tensor) { return tensor.device().type() == type(); }

// The same memory, which the tensor does not keep alive.
at::Tensor view_of_pinned(const at::Tensor& tensor) {
  return at::for_blob(tensor.unsafeGetTensorImpl()->mutable_data(), tensor.sizes())
      .strides(tensor.strides())
      .options(at::dtype(tensor.scalar_type()))
      .make_tensor();
}

void copy_between_devices(const at::Tensor& source, const at::Tensor& destination) {
  auto& queue = current_queue(source.device().index());
  auto& other = current_queue(destination.device().index());
  wait_in(queue, end_of(other));
  wait_in(other, push_copy(queue, host_view(source), host_view(destination)));
}

void copy_to_device(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  auto& queue = current_queue(destination.device().index());
  const void* const pointer = source.unsafeGetTensorImpl()->data();
  if (!non_blocking) {
    queue.wait(push_copy(queue, source, host_view(destination)).number);
  } else if (is_pinned(pointer)) {
    record_pinned_use(pointer, push_copy(queue, view_of_pinned(source), host_view(destination)));
  } else {
    push_copy(queue, source.clone(), host_view(destination));
  }
}

void copy_to_host(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  auto& queue = current_queue(source.device().index());
  const void* const pointer = destination.unsafeGetTensorImpl()->data();
  if (non_blocking && is_pinned(pointer)) {
    record_pinned_use(pointer, push_copy(queue, host_view(source), view_of_pinned(destination)));
  } else {
    queue.wait(push_copy(queue, host_view(source), destination).number);
  }
}

}  // namespace

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  if (destination.numel() == 0) return destination;
  const auto from = source.expand_as(destination);
  if (is_on_device(from) && is_on_device(destination)) {
    copy_between_devices(from, destination);
  } else if (is_on_device(destination)) {
    copy_to_device(from, destination, non_blocking);
  } else {
    copy_to_host(from, destination, non_blocking);
  }
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& destination) {
  destination.resize_(source.sizes());
  return copy_from(source, destination, /*non_blocking=*/false);
}

}  // namespace cohort::sim
