/// StreamBackend: a c10d backend for simulated devices that behaves towards streams as ProcessGroupNCCL does. A collective
/// runs in a stream of the backend's own, after what the current stream holds; Work::wait() makes the current stream wait;
/// each device has a communicator, and each pair of ranks one per direction for send and recv. The bytes travel by Gloo.
/// CPU tensors go to Gloo directly.
#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/comm/backend/backend_request.h"

namespace cohort::sim {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class StreamBackend final : public c10d::Backend {
 public:
  /// Collective: connects the ranks of the group.
  explicit StreamBackend(comm::BackendRequest request);

  const std::string getBackendName() const override { return "stream"; }
  void setTimeout(std::chrono::milliseconds timeout) override { request_.timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  void shutdown() override { ++num_shut_down_; }
  /// Of all of this process.
  static int num_shut_down() { return num_shut_down_; }
  /// Blocks the host, as NCCL's does, and waits for the devices first.
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;

 private:
  using Engine = c10::intrusive_ptr<c10d::Backend>;
  // Connected by its stream's first operation, so that no host waits for another rank.
  struct Communicator {
    c10::Stream stream;
    std::function<Engine()> connect;
    std::shared_ptr<Engine> engine = std::make_shared<Engine>();
  };
  // Starts the operation on host views of the inputs and outputs.
  using Operation = std::function<WorkPtr(c10d::Backend& engine, Tensors inputs, Tensors outputs)>;

  Communicator communicator(c10::Device device);
  Communicator communicator_to(c10::Device device, int from, int to);
  static WorkPtr run(const Communicator& communicator, const Tensors& inputs, const Tensors& outputs,
                     const Operation& operation);

  static inline std::atomic<int> num_shut_down_{0};
  comm::BackendRequest request_;
  Engine host_;
  std::mutex mutex_;
  std::map<std::string, Communicator> communicators_;
  std::map<std::string, int> num_of_pairs_;
  int num_of_all_ = 0;  // communicators of all ranks, which every rank makes in the same order
};

/// Collective: a StreamBackend; of real devices NCCL where each rank has its own, else Gloo, which has copies on the host.
c10::intrusive_ptr<c10d::Backend> make_device_backend(const comm::BackendRequest& request);
/// Makes it known to init_process_group as "stream"; for simulated devices that is the one of backend "cohort", too.
void register_stream_backend();

}  // namespace cohort::sim
