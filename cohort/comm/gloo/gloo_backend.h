/// GlooBackend: LibTorch's ProcessGroupGloo, completed. Private to this folder; make_gloo_backend makes it.
///
/// For everything that Gloo can do, the messages on the wire are the same as PyTorch's, so that Python ranks can take part:
/// contiguous copies (contiguous_copies.h) and carriers (reduction.h) change the tensors that this rank passes to the engine,
/// never which engine operations run.
///
/// Semantics are those of torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, on any layout and every dtype. Works are
/// TrackedWorks: they complete when the result is in the user's tensor.
/// Throws: c10::ValueError for arguments that can never work, c10::Error with the engine's text for what the engine refuses,
/// c10::DistBackendError for a lost peer and for NaN found by TORCH_NCCL_NAN_CHECK.
/// Thread-safety: one thread at a time, as ProcessGroupGloo.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/comm/backend/nan_check.h"
#include "cohort/comm/gloo/gloo_failure.h"
#include "cohort/comm/gloo/known_dtypes.h"
#include "cohort/comm/gloo/reduction.h"
#include "cohort/comm/tensors/contiguous_copies.h"
#include "cohort/comm/tensors/takes_complex.h"
#include "cohort/comm/tensors/tensor_checks.h"
#include "cohort/comm/watch/operation_watch.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::comm {

class GlooBackend final : public c10d::ProcessGroupGloo, public TakesComplex {
 public:
  using Tensor = at::Tensor;
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  GlooBackend(const BackendRequest& request, c10::intrusive_ptr<Options> engine_options);

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
  /// Keeps the engine's texts, which are PyTorch's.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 private:
  /// Steps that remain when the engine has completed an operation.
  struct Completion {
    /// If empty, no step remains.
    std::function<void()> after;
    /// The Work's result, if the engine's result is a contiguous copy. If absent, the engine's result.
    std::optional<Tensors> result;
  };

  job::Operation describe(const char* name, const Tensors& tensors, std::string shape) const;
  job::Operation describe(const char* name, const Tensors& tensors, std::string shape, const c10d::ReduceOp& op) const;
  job::Operation point_to_point(const char* name, const Tensors& tensors, int peer) const;

  /// Runs every operation. `handed_in`: the tensors whose content leaves this rank. `call(completion)` passes the operation to
  /// the engine, returns its Work and sets the steps that remain when it has completed.
  template <class Call>
  WorkPtr run(job::Operation operation, const Tensors& handed_in, Call call) {
    start(operation, handed_in);
    Completion completion;
    WorkPtr work;
    try {
      work = call(completion);
    } catch (const c10::Error&) {
      throw;  // a check of arguments
    } catch (const std::exception& error) {
      throw_failure(watch_->find_cause(operation, gloo_failure(error)));
    }
    return track(std::move(operation), std::move(work), std::move(completion), handed_in);
  }
  void start(job::Operation& operation, const Tensors& handed_in);
  WorkPtr track(job::Operation operation, WorkPtr work, Completion completion, const Tensors& handed_in);

  static void complete(Completion& completion, ContiguousCopies copies, const Tensors& results);
  void complete(Completion& completion, const Reduction& reduction, std::vector<Carrier> carriers,
                const Tensors& tensors) const;

  WorkPtr reduce_sparse(const char* name, Tensors& tensors, const c10d::AllreduceOptions& opts);
  /// Runs one all-reduce for each carrier, as one Work.
  template <class EngineOptions>
  WorkPtr reduce_each(const Tensors& carriers, const EngineOptions& opts, c10d::ReduceOp op);
  WorkPtr scatter_reduced(const char* name, const Tensors& outputs, const Tensors& inputs,
                          const c10d::ReduceScatterOptions& opts);
  using Unpack = std::function<void(ContiguousCopies&, const Tensor&)>;
  /// `unpack` gets every rank's packed inputs as rows of bytes.
  WorkPtr gather_packed(const char* name, const Tensors& inputs, const c10d::AllgatherOptions& opts,
                        const Unpack& unpack);
  WorkPtr gather_uneven(const Tensors& inputs, const Tensors& outputs, const c10d::AllgatherOptions& opts);
  Tensors received_on_host(const Tensors& tensors, Completion& completion) const;

  std::shared_ptr<OperationWatch> watch_;
  std::string group_name_;
  std::string host_;
  bool checks_nan_;
  /// The engine's monitored barrier sends and receives through our overrides.
  bool in_monitored_barrier_ = false;
  uint64_t num_collectives_ = 0;
  uint64_t num_point_to_point_ = 0;
};

}  // namespace cohort::comm
