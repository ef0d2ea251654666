#include "cohort/comm/backend/per_device_backend.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>

#include <algorithm>

#include "cohort/comm/backend/joined_work.h"

namespace cohort::comm {

using WorkPtr = PerDeviceBackend::WorkPtr;

PerDeviceBackend::PerDeviceBackend(std::string name, std::vector<Part> parts, std::chrono::milliseconds timeout)
    : Backend(parts.front().backend->getRank(), parts.front().backend->getSize()),
      parts_(std::move(parts)),
      options_(c10::make_intrusive<Options>(std::move(name), timeout)) {}

c10d::Backend* PerDeviceBackend::find(c10::DeviceType device) const {
  for (const auto& part : parts_) {
    if (part.device == device) return part.backend.get();
  }
  return nullptr;
}

c10d::Backend& PerDeviceBackend::of(const char* operation, c10::DeviceType device) const {
  auto* const backend = find(device);
  if (!backend) {
    std::string served;
    for (const auto& part : parts_) served += (served.empty() ? "" : ", ") + c10::DeviceTypeName(part.device, true);
    TORCH_CHECK_VALUE(false, "[cohort] ", operation, ": backend \"", getBackendName(), "\" of this group serves ",
                      served, " tensors, got one on ", c10::DeviceTypeName(device, true));
  }
  return *backend;
}

// Runs every operation.
template <class Call>
WorkPtr PerDeviceBackend::run(const char* operation, c10::DeviceType device, Call call) {
  auto& backend = of(operation, device);
  if (!coalesced_) return call(backend);
  auto& begun = coalesced_->begun;
  if (backend.supportsCoalescing() && std::find(begun.begin(), begun.end(), &backend) == begun.end()) {
    backend.startCoalescing();
    begun.push_back(&backend);
  }
  auto work = call(backend);
  if (work && !backend.supportsCoalescing()) coalesced_->works.push_back(work);
  return work;
}

template <class Call>
WorkPtr PerDeviceBackend::run(const char* operation, const Tensors& tensors, Call call) {
  TORCH_CHECK_VALUE(!tensors.empty() && tensors.front().defined(), "[cohort] ", operation, ": no tensor given");
  return run(operation, tensors.front().device().type(), std::move(call));
}

WorkPtr PerDeviceBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return run("broadcast", tensors, [&](auto& backend) { return backend.broadcast(tensors, opts); });
}

WorkPtr PerDeviceBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return run("all_reduce", tensors, [&](auto& backend) { return backend.allreduce(tensors, opts); });
}

WorkPtr PerDeviceBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return run("all_reduce", tensors, [&](auto& backend) { return backend.allreduce_sparse(tensors, opts); });
}

WorkPtr PerDeviceBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return run("all_reduce_coalesced", tensors,
             [&](auto& backend) { return backend.allreduce_coalesced(tensors, opts); });
}

WorkPtr PerDeviceBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return run("reduce", tensors, [&](auto& backend) { return backend.reduce(tensors, opts); });
}

WorkPtr PerDeviceBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  return run("all_gather", inputs, [&](auto& backend) { return backend.allgather(outputs, inputs, opts); });
}

WorkPtr PerDeviceBackend::_allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) {
  return run("all_gather_single", Tensors{input},
             [&](auto& backend) { return backend._allgather_base(output, input, opts); });
}

WorkPtr PerDeviceBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  return run("all_gather_coalesced", inputs,
             [&](auto& backend) { return backend.allgather_coalesced(outputs, inputs, opts); });
}

WorkPtr PerDeviceBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  return run("all_gather_single_coalesced", inputs,
             [&](auto& backend) { return backend.allgather_into_tensor_coalesced(outputs, inputs, opts); });
}

WorkPtr PerDeviceBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  return run("gather", inputs, [&](auto& backend) { return backend.gather(outputs, inputs, opts); });
}

WorkPtr PerDeviceBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) {
  return run("scatter", outputs, [&](auto& backend) { return backend.scatter(outputs, inputs, opts); });
}

WorkPtr PerDeviceBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  return run("reduce_scatter", outputs, [&](auto& backend) { return backend.reduce_scatter(outputs, inputs, opts); });
}

WorkPtr PerDeviceBackend::_reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return run("reduce_scatter_single", Tensors{output},
             [&](auto& backend) { return backend._reduce_scatter_base(output, input, opts); });
}

WorkPtr PerDeviceBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  return run("reduce_scatter_single_coalesced", outputs,
             [&](auto& backend) { return backend.reduce_scatter_tensor_coalesced(outputs, inputs, opts); });
}

WorkPtr PerDeviceBackend::alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  return run("all_to_all_single", Tensors{input},
             [&](auto& backend) { return backend.alltoall_base(output, input, output_splits, input_splits, opts); });
}

WorkPtr PerDeviceBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return run("all_to_all", inputs, [&](auto& backend) { return backend.alltoall(outputs, inputs, opts); });
}

WorkPtr PerDeviceBackend::send(Tensors& tensors, int dst, int tag) {
  return run("send", tensors, [&](auto& backend) { return backend.send(tensors, dst, tag); });
}

WorkPtr PerDeviceBackend::recv(Tensors& tensors, int src, int tag) {
  return run("recv", tensors, [&](auto& backend) { return backend.recv(tensors, src, tag); });
}

WorkPtr PerDeviceBackend::recvAnysource(Tensors& tensors, int tag) {
  return run("recv", tensors, [&](auto& backend) { return backend.recvAnysource(tensors, tag); });
}

WorkPtr PerDeviceBackend::barrier(const c10d::BarrierOptions& opts) {
  const bool is_served = opts.device && find(opts.device->type());
  const auto device = is_served ? opts.device->type() : parts_.front().device;
  return run("barrier", device, [&](auto& backend) { return backend.barrier(opts); });
}

void PerDeviceBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  parts_.front().backend->monitoredBarrier(opts, wait_all_ranks);
}

bool PerDeviceBackend::supportsCoalescing() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part.backend->supportsCoalescing(); });
}

void PerDeviceBackend::startCoalescing() { coalesced_.emplace(); }

WorkPtr PerDeviceBackend::endCoalescing() {
  TORCH_CHECK(coalesced_, "[cohort] endCoalescing without startCoalescing");
  auto coalesced = *std::exchange(coalesced_, std::nullopt);
  for (auto* const backend : coalesced.begun) {
    if (auto work = backend->endCoalescing()) coalesced.works.push_back(std::move(work));
  }
  if (coalesced.works.empty()) return {};
  if (coalesced.works.size() == 1) return coalesced.works.front();
  return c10::make_intrusive<JoinedWork>(std::move(coalesced.works));
}

void PerDeviceBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  for (const auto& part : parts_) part.backend->setTimeout(timeout);
}

void PerDeviceBackend::setSequenceNumberForGroup() {
  for (const auto& part : parts_) part.backend->setSequenceNumberForGroup();
}

uint64_t PerDeviceBackend::getSequenceNumberForGroup() { return parts_.front().backend->getSequenceNumberForGroup(); }

bool PerDeviceBackend::supportsTensorAlloc(c10::DeviceIndex index) {
  return std::any_of(parts_.begin(), parts_.end(), [&](const auto& part) {
    return part.device != c10::DeviceType::CPU && part.backend->supportsTensorAlloc(index);
  });
}

at::Tensor PerDeviceBackend::allocateTensor(long size, at::TensorOptions options) {
  return of("allocate_tensor", options.device().type()).allocateTensor(size, options);
}

void PerDeviceBackend::eagerConnectSingleDevice(at::Device device) {
  if (auto* const backend = find(device.type())) backend->eagerConnectSingleDevice(device);
}

void PerDeviceBackend::abort() {
  for (const auto& part : parts_) part.backend->abort();
}

void PerDeviceBackend::shutdown() {
  for (const auto& part : parts_) part.backend->shutdown();
}

const c10d::Backend* find_serving(const c10d::Backend& backend, c10::DeviceType device) {
  if (const auto* wrapper = dynamic_cast<const c10d::ProcessGroupWrapper*>(&backend)) {
    return find_serving(*wrapper->getWrappedPg(), device);
  }
  const auto* parted = dynamic_cast<const PerDeviceBackend*>(&backend);
  return parted ? parted->find(device) : &backend;
}

c10d::Backend* find_serving(c10d::Backend& backend, c10::DeviceType device) {
  return const_cast<c10d::Backend*>(find_serving(std::as_const(backend), device));
}

}  // namespace cohort::comm
