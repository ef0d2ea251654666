/// PerDeviceBackend: one Backend in front of several, one per device type. For groups in which c10d keeps a single backend
/// for all devices, such as groups of registered backends.
///
/// An operation goes to the backend of its tensors' device. A barrier goes to the backend of its options' device, or to the first
/// one if they name no device.
/// Between startCoalescing and endCoalescing, for which c10d names no device, each backend that can coalesce is told at its first
/// operation.
/// Throws: c10::ValueError for tensors of a device without backend, and whatever the backends throw.
/// Thread-safety: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::comm {

class COHORT_TEST_API PerDeviceBackend final : public c10d::Backend {
 public:
  using Tensor = at::Tensor;
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  struct Part {
    c10::DeviceType device;
    BackendPtr backend;
  };

  /// `parts`: at least one, of equal rank and size.
  PerDeviceBackend(std::string name, std::vector<Part> parts, std::chrono::milliseconds timeout);

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int dst, int tag) override;
  WorkPtr recv(Tensors& tensors, int src, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  bool supportsCoalescing() const override;
  void startCoalescing() override;
  /// Returns: one Work for everything begun since startCoalescing; null if nothing was begun.
  WorkPtr endCoalescing() override;

  const std::string getBackendName() const override { return options_->backend; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override;
  /// Returns the first backend's number.
  uint64_t getSequenceNumberForGroup() override;
  bool supportsTensorAlloc(c10::DeviceIndex index) override;
  Tensor allocateTensor(long size, at::TensorOptions options) override;
  void eagerConnectSingleDevice(at::Device device) override;
  void abort() override;
  void shutdown() override;

  /// Returns null if no backend serves the device.
  c10d::Backend* find(c10::DeviceType device) const;

 private:
  c10d::Backend& of(const char* operation, c10::DeviceType device) const;
  template <class Call>
  WorkPtr run(const char* operation, c10::DeviceType device, Call call);
  template <class Call>
  WorkPtr run(const char* operation, const Tensors& tensors, Call call);

  struct Coalesced {
    std::vector<c10d::Backend*> begun;
    std::vector<WorkPtr> works;
  };

  const std::vector<Part> parts_;
  const c10::intrusive_ptr<Options> options_;
  std::optional<Coalesced> coalesced_;
};

/// Returns what serves `device` in `backend`, without the wrapper of TORCH_DISTRIBUTED_DEBUG: the backend itself, or, if it is a
/// PerDeviceBackend, its part for that device. Null if it has no such part.
const c10d::Backend* find_serving(const c10d::Backend& backend, c10::DeviceType device);
c10d::Backend* find_serving(c10d::Backend& backend, c10::DeviceType device);

}  // namespace cohort::comm
