#include "cohort/data/loader/device_copies.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace cohort::data::detail {
namespace {

c10::Device with_index(c10::Device device) {
  return device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

}  // namespace

void pin(at::Tensor& tensor) {
  if (tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided) tensor = tensor.pin_memory();
}

struct DeviceCopies::Streams {
  explicit Streams(c10::Device device_)
      : device(with_index(device_)),
        implementation(device.type()),
        copying(implementation.getStreamFromGlobalPool(device)),
        are_copied(device.type()) {}

  const c10::Device device;
  const c10::impl::VirtualGuardImpl implementation;
  const c10::Stream copying;
  c10::Event are_copied;
};

DeviceCopies::DeviceCopies(c10::Device device, VisitTensors visit)
    : streams_(std::make_unique<Streams>(device)), visit_(visit) {}

DeviceCopies::~DeviceCopies() = default;

void DeviceCopies::begin(void* batch) {
  const c10::StreamGuard guard(streams_->copying);
  visit_(batch, [&](at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cpu()) return;
    tensor = tensor.to(tensor.options().device(streams_->device), /*non_blocking=*/true);
  });
  streams_->are_copied.record(streams_->copying);
}

void DeviceCopies::finish(void* batch) {
  const auto current = streams_->implementation.getStream(streams_->device);
  streams_->are_copied.block(current);
  visit_(batch, [&](at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (tensor.device() != streams_->device) {  // it was on another device
      tensor = tensor.to(tensor.options().device(streams_->device), /*non_blocking=*/true);
    } else if (tensor.layout() == at::kStrided) {
      streams_->implementation.recordDataPtrOnStream(tensor.storage().data_ptr(), current);
    }
  });
}

}  // namespace cohort::data::detail
