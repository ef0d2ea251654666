#include "cohort/comm/nccl/nccl_backend.h"

#define USE_C10D_NCCL
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/system/deadline.h"
#include "cohort/base/system/env.h"
#include "cohort/base/system/host.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/tensors/operation_text.h"
#include "cohort/comm/watch/operation_watch.h"
#include "cohort/comm/watch/peers.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/job/network.h"

namespace cohort::comm {
namespace {

using job::Operation;
using Tensor = at::Tensor;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Clock = std::chrono::steady_clock;

Failure nccl_failure(const std::exception& error, bool timed_out) {
  return {.kind = timed_out ? Failure::Kind::kTimeout : Failure::Kind::kEngine, .causes = {text_of(error)}};
}

// The engine's Work, with its failure explained. It is not a TrackedWork: on a GPU a Work that has been waited for still runs,
// and a Work may be dropped while it runs.
class NcclWork final : public c10d::Work {
 public:
  NcclWork(WorkPtr work, job::Operation operation, std::shared_ptr<OperationWatch> watch)
      : work_(std::move(work)), operation_(std::move(operation)), watch_(std::move(watch)) {}

  bool isCompleted() override {
    return explained([&] { return work_->isCompleted(); });
  }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override {
    const auto failure = work_->exception();
    if (!failure) return nullptr;
    try {
      explained([&] { std::rethrow_exception(failure); });
    } catch (...) {
      return std::current_exception();
    }
    return failure;
  }
  int sourceRank() const override { return work_->sourceRank(); }
  Tensors result() override { return work_->result(); }
  void synchronize() override {
    explained([&] { work_->synchronize(); });
  }
  bool wait(std::chrono::milliseconds timeout) override {
    return explained([&] { return work_->wait(base::bounded_time(timeout)); });
  }
  void blockCurrentStream() override {
    explained([&] { work_->blockCurrentStream(); });
  }
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return work_->getFutureResult(); }
  float getDuration() const override { return work_->getDuration(); }
  uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

 private:
  template <class Call>
  auto explained(Call call) const -> decltype(call()) {
    try {
      return call();
    } catch (const std::exception& error) {
      throw_failure(watch_->find_cause(operation_, nccl_failure(error, has_timed_out())));
    }
  }
  // Whether the engine says that the Work has timed out.
  bool has_timed_out() const {
    const auto result = work_->getFutureResult();
    return result && result->completed() && !result->hasError() &&
           result->constValue().toInt() == static_cast<int64_t>(c10d::WorkResult::TIMEOUT);
  }

  WorkPtr work_;
  job::Operation operation_;
  std::shared_ptr<OperationWatch> watch_;
};

class NcclProcessGroup final : public c10d::ProcessGroupNCCL {
 public:
  NcclProcessGroup(const BackendRequest& request, c10::intrusive_ptr<Options> engine_options)
      : ProcessGroupNCCL(request.store, request.rank, request.world_size, std::move(engine_options)),
        watch_(request.watch ? request.watch : engine_text_watch()),
        group_name_(request.group_name),
        host_(base::host_name()) {}

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    auto operation = describe("broadcast", tensors);
    operation.root = static_cast<int>(opts.rootRank);
    return run(std::move(operation), [&] { return ProcessGroupNCCL::broadcast(tensors, opts); });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return run(describe("all_reduce", tensors, opts.reduceOp),
               [&] { return ProcessGroupNCCL::allreduce(tensors, opts); });
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return run(describe("all_reduce_sparse", {}, opts.reduceOp),
               [&] { return ProcessGroupNCCL::allreduce_sparse(tensors, opts); });
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return run(describe("all_reduce_coalesced", tensors, opts.reduceOp),
               [&] { return ProcessGroupNCCL::allreduce_coalesced(tensors, opts); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    auto operation = describe("reduce", tensors, opts.reduceOp);
    operation.root = static_cast<int>(opts.rootRank);
    return run(std::move(operation), [&] { return ProcessGroupNCCL::reduce(tensors, opts); });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return run(describe("all_gather", inputs), [&] { return ProcessGroupNCCL::allgather(outputs, inputs, opts); });
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) override {
    return run(describe("all_gather_single", {input}),
               [&] { return ProcessGroupNCCL::_allgather_base(output, input, opts); });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override {
    return run(describe("all_gather_single_coalesced", inputs),
               [&] { return ProcessGroupNCCL::allgather_into_tensor_coalesced(outputs, inputs, opts); });
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    auto operation = describe("gather", inputs);
    operation.root = static_cast<int>(opts.rootRank);
    return run(std::move(operation), [&] { return ProcessGroupNCCL::gather(outputs, inputs, opts); });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override {
    auto operation = describe("scatter", outputs);
    operation.root = static_cast<int>(opts.rootRank);
    return run(std::move(operation), [&] { return ProcessGroupNCCL::scatter(outputs, inputs, opts); });
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    return run(describe("reduce_scatter", outputs, opts.reduceOp),
               [&] { return ProcessGroupNCCL::reduce_scatter(outputs, inputs, opts); });
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    return run(describe("reduce_scatter_single", {output}, opts.reduceOp),
               [&] { return ProcessGroupNCCL::_reduce_scatter_base(output, input, opts); });
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return run(describe("reduce_scatter_single_coalesced", outputs, opts.reduceOp),
               [&] { return ProcessGroupNCCL::reduce_scatter_tensor_coalesced(outputs, inputs, opts); });
  }
  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override {
    auto operation = describe("all_to_all_single", {input});
    operation.shape.clear();  // may differ between ranks
    return run(std::move(operation),
               [&] { return ProcessGroupNCCL::alltoall_base(output, input, output_splits, input_splits, opts); });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    auto operation = describe("all_to_all", inputs);
    operation.shape.clear();
    return run(std::move(operation), [&] { return ProcessGroupNCCL::alltoall(outputs, inputs, opts); });
  }
  WorkPtr send(Tensors& tensors, int dst, int tag) override {
    return run(point_to_point("send", tensors), [&] { return ProcessGroupNCCL::send(tensors, dst, tag); });
  }
  WorkPtr recv(Tensors& tensors, int src, int tag) override {
    return run(point_to_point("recv", tensors), [&] { return ProcessGroupNCCL::recv(tensors, src, tag); });
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return run(describe("barrier", {}), [&] { return ProcessGroupNCCL::barrier(opts); });
  }

 private:
  job::Operation describe(const char* name, const Tensors& tensors) const {
    job::Operation operation{.name = name,
                             .sequence = 0,
                             .group = group_name_,
                             .rank = getRank(),
                             .world_size = getSize(),
                             .host = host_,
                             .backend = "nccl"};
    for (const auto& tensor : tensors) {
      operation.num_bytes += static_cast<int64_t>(tensor.nbytes());
      operation.shape += (operation.shape.empty() ? "" : ", ") + shape_text(tensor.sizes());
    }
    if (!tensors.empty()) operation.dtype = dtype_name(tensors.front().scalar_type());
    return operation;
  }
  job::Operation describe(const char* name, const Tensors& tensors, const c10d::ReduceOp& op) const {
    auto operation = describe(name, tensors);
    operation.reduce_op = reduce_op_name(op);
    return operation;
  }
  job::Operation point_to_point(const char* name, const Tensors& tensors) const {
    auto operation = describe(name, tensors);
    operation.point_to_point = true;
    operation.shape.clear();
    return operation;
  }

  // Runs every operation. Inside a coalesced group the engine returns no Work until endCoalescing.
  template <class Call>
  WorkPtr run(job::Operation operation, Call call) {
    operation.sequence = operation.point_to_point ? ++num_point_to_point_ : ++num_collectives_;
    watch_->starting(operation);
    const auto begin = Clock::now();
    WorkPtr work;
    try {
      work = call();
    } catch (const c10::DistError& error) {
      // Ranks meet in the store here, for at most the group's timeout.
      throw_failure(watch_->find_cause(operation, nccl_failure(error, Clock::now() - begin >= options_->timeout)));
    }
    if (!work) return work;
    return c10::make_intrusive<NcclWork>(std::move(work), std::move(operation), watch_);
  }

  std::shared_ptr<OperationWatch> watch_;
  std::string group_name_;
  std::string host_;
  uint64_t num_collectives_ = 0;
  uint64_t num_point_to_point_ = 0;
};

}  // namespace

bool nccl_available() { return true; }

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request) {
  TORCH_CHECK_VALUE(at::detail::getCUDAHooks().deviceCount() > 0, "[cohort] backend \"nccl\" needs a GPU, and rank ",
                    request.rank, " of group \"", request.group_name, "\" on ", base::host_name(),
                    " sees none\n  hint: check nvidia-smi and CUDA_VISIBLE_DEVICES; on CPU use backend \"gloo\"");
  or_throw_value(job::check_nccl_interface(base::get_env("NCCL_SOCKET_IFNAME").value_or(""), base::list_interfaces()));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  options->group_name = request.group_name;
  options->global_ranks_in_group = request.global_ranks;
  auto backend = c10::make_intrusive<NcclProcessGroup>(request, std::move(options));
  backend->setSequenceNumberForGroup();
  if (request.device_id && request.device_id->is_cuda()) {
    backend->setBoundDeviceId(*request.device_id);
    backend->eagerConnectSingleDevice(*request.device_id);
  }
  return backend;
}

}  // namespace cohort::comm
