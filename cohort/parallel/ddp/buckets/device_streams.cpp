#include "cohort/parallel/ddp/buckets/device_streams.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace cohort::ddp {
namespace {

c10::Stream current_stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

void FillingStreams::add_current(c10::Device device, const at::Tensor& contents) {
  if (device.is_cpu()) return;
  const auto stream = current_stream_of(device);
  if (!streams_.empty() && streams_.back() == stream) return;
  std::erase(streams_, stream);
  streams_.push_back(stream);
  used_in_current_stream(contents);
}

std::optional<c10::Stream> FillingStreams::join() {
  if (streams_.empty()) return std::nullopt;
  const auto last = streams_.back();
  streams_.pop_back();
  for (const auto& stream : streams_) {
    c10::Event filled(stream.device_type());
    filled.record(stream);
    filled.block(last);
  }
  streams_.clear();
  return last;
}

CallerStreams::CallerStreams(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) {
    const auto device = parameter.device();
    const bool is_known = std::find(devices_.begin(), devices_.end(), device) != devices_.end();
    if (!device.is_cpu() && !is_known) devices_.push_back(device);
  }
}

void CallerStreams::remember() {
  streams_.clear();
  for (const auto device : devices_) streams_.push_back(current_stream_of(device));
}

std::optional<c10::Stream> CallerStreams::on(c10::Device device) const {
  for (const auto& stream : streams_) {
    if (stream.device() == device) return stream;
  }
  return std::nullopt;
}

at::Tensor CallerStreams::make_like(const at::Tensor& parameter) const {
  const auto stream = on(parameter.device());
  if (!stream) return at::empty_like(parameter);
  at::Tensor made;
  {
    const c10::StreamGuard guard(*stream);
    made = at::empty_like(parameter);
  }
  // The last owner's work on the memory may still be pending there.
  c10::Event is_free(stream->device_type());
  is_free.record(*stream);
  is_free.block(current_stream_of(parameter.device()));
  used_in_current_stream(made);
  return made;
}

void used_in_current_stream(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu() || tensor.layout() != at::kStrided) return;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
}

}  // namespace cohort::ddp
