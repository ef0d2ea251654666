#include "cohort/parallel/fsdp/settings/side_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace cohort::fsdp {
namespace {

c10::Stream current_stream(const c10::Stream& like) {
  return c10::impl::VirtualGuardImpl(like.device_type()).getStream(like.device());
}

void make_wait(const c10::Stream& waiting, const c10::Stream& first) {
  if (waiting == first) return;
  c10::Event event(first.device_type());
  event.record(first);
  event.block(waiting);
}

}  // namespace

SideStream::SideStream(c10::Device device) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

void SideStream::wait_for_current() const {
  if (stream_) make_wait(*stream_, current_stream(*stream_));
}

void SideStream::block_current() const {
  if (stream_) make_wait(current_stream(*stream_), *stream_);
}

void SideStream::wait_for(c10::Event& event) const {
  if (stream_) event.block(*stream_);
}

SideStream::Mark SideStream::mark() const {
  Mark result;
  if (!stream_) return result;
  result.stream_ = stream_;
  result.event_ = std::make_shared<c10::Event>(stream_->device_type());
  result.event_->record(*stream_);
  return result;
}

void SideStream::Mark::block_current() {
  if (event_) event_->block(current_stream(*stream_));
}

void used_in_current_stream(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
}

}  // namespace cohort::fsdp
