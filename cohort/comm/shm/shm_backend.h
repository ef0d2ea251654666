/// ShmBackend: the backend "shm". Private to this folder; make_shm_backend makes it.
///
/// Semantics are those of torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, on CPU tensors of any layout and dtype. Results are
/// the same bits on every rank. Each call is one Work, including coalesced calls. shm_session.h explains synchronous and
/// asynchronous operations.
/// Throws: c10::ValueError for arguments that can never work, c10::DistBackendError for NaN found by TORCH_NCCL_NAN_CHECK.
/// wait() throws later failures; if the caller ignores the Work (unwanted_work.h), the call throws them.
/// Thread-safety: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/comm/backend/direct_collectives.h"
#include "cohort/comm/backend/memory_sharer.h"
#include "cohort/comm/backend/unwanted_work.h"
#include "cohort/comm/shm/shm_call.h"
#include "cohort/comm/shm/shm_session.h"
#include "cohort/comm/tensors/contiguous_copies.h"
#include "cohort/comm/tensors/takes_complex.h"

namespace cohort::comm {

class ShmBackend final : public c10d::Backend, public MemorySharer, public DirectCollectives, public TakesComplex {
 public:
  using Tensor = at::Tensor;
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  ShmBackend(std::shared_ptr<ShmSession> session, const BackendRequest& request);
  ~ShmBackend() override;

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
  /// Throws c10::DistBackendError with PyTorch's texts. Always synchronous.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  const std::string getBackendName() const override { return "shm"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// Counts from 0 on every rank.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return num_collectives_; }
  void abort() override { session_->abort(); }
  /// Completes operations that have started, then leaves the group.
  void shutdown() override { session_->complete_and_close(); }

  Tensor make_shared_tensor(c10::IntArrayRef sizes, const at::TensorOptions& options) override;
  bool shares_tensors() const override { return session_->shares_tensors(); }
  shm::CommonMemory make_common_memory(size_t num_bytes, bool has_pages) override;
  std::vector<shm::SharedMemoryPtr> arenas() override { return session_->arenas(); }

  bool all_reduce_now(const Tensor& tensor, const c10d::ReduceOp& op) override;
  bool broadcast_now(const Tensor& tensor, int root) override;
  bool reduce_now(const Tensor& tensor, const c10d::ReduceOp& op, int root) override;
  bool all_gather_now(const Tensor& output, const Tensor& input) override;
  bool reduce_scatter_now(const Tensor& output, const Tensor& input, const c10d::ReduceOp& op) override;
  bool all_to_all_now(const Tensor& output, const Tensor& input) override;
  bool barrier_now() override;

 private:
  struct Request {
    const ShmOperation& operation;
    bool is_async = false;
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    int root = -1;
    c10d::ReduceOp::RedOpType reduce_op = c10d::ReduceOp::UNUSED;
    const void* caller = nullptr;  ///< the caller of this backend
  };

  /// Runs every collective. `shown`: the tensors that texts describe; `handed_in`: the tensors whose content leaves this
  /// rank; `body(group, options)` calls the engine, now or later, at most once.
  template <class Body>
  WorkPtr run(const Request& request, at::TensorList shown, at::TensorList handed_in, at::TensorList results,
              Body body) {
    const bool is_unwanted = UnwantedWork::here();
    const UnwantedWork looked_at(false);  // callbacks from here may look at their Works
    const auto call = begin(request, shown, handed_in);
    const auto inputs = profiled(shown);
    if (!request.is_async && !inputs && is_unwanted && session_->run_now([&] { return call; }, shown, body)) {
      return finished_work();
    }
    auto work = c10::make_intrusive<ShmWork>(rank_, call, results.vec(), inputs);
    if (!request.is_async && session_->run_now(*work, shown, body)) return work;
    work->prepare(session_, shown.vec(), std::move(body));
    session_->enqueue(work);
    if (!request.is_async) session_->run_through(*work);
    return work;
  }
  /// Runs the call for DirectCollectives. Returns false if run() would make a Work for it.
  template <class Body>
  bool run_directly(const Request& request, at::TensorList shown, at::TensorList handed_in, const Body& body) {
    if (is_profiled()) return false;
    return session_->run_now([&] { return begin(request, shown, handed_in); }, shown, body);
  }
  ShmCall begin(const Request& request, at::TensorList shown, at::TensorList handed_in);
  static bool is_profiled();
  static std::optional<Tensors> profiled(at::TensorList tensors);

  WorkPtr gather_each(const Request& request, const Tensors& inputs, std::vector<std::vector<void*>> outputs,
                      ContiguousCopies copies, Tensors kept, const Tensors& results);
  WorkPtr gather_uneven(const Request& request, const Tensors& inputs, const Tensors& outputs);
  WorkPtr gather_into(const Request& request, const Tensors& outputs, const Tensors& inputs);
  WorkPtr reduce_each(const Request& request, const Tensors& tensors, const c10d::ReduceOp& op);
  WorkPtr reduce_sparse(const Request& request, Tensors& tensors);
  WorkPtr scatter_reduced(const Request& request, const c10d::ReduceOp& op, const Tensors& outputs,
                          const std::vector<Tensors>& inputs);
  WorkPtr scatter_uneven(const Request& request, const c10d::ReduceOp& op, const Tensors& outputs, const Tensors& list);
  WorkPtr scatter_from(const Request& request, const c10d::ReduceOp& op, const Tensors& outputs, const Tensors& inputs);
  WorkPtr transfer(const ShmOperation& operation, Tensors& tensors, int peer, int tag, const void* caller);
  void be_monitored(const ShmCall& call);
  void monitor(const ShmCall& call, bool wait_all_ranks);

  const std::shared_ptr<ShmSession> session_;
  const c10::intrusive_ptr<Options> options_;
  const bool checks_nan_;
  std::atomic<uint64_t> num_collectives_ = 0;
  uint64_t num_point_to_point_ = 0;
};

}  // namespace cohort::comm
