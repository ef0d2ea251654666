#include "cohort/comm/gloo/gloo_backend.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "cohort/comm/gloo/gloo_options.h"
#include "cohort/comm/peer.h"
#include "cohort/comm/tracked_work.h"

namespace cohort::comm {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

std::string dtype_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(tensor.scalar_type());
  }
}

// For groups whose ranks are not known as processes: Gloo's own text.
struct EngineText final : OperationWatch {
  void starting(const Operation&) override {}
  std::string find_obstacle(const Operation&) override { return {}; }
  std::string explain(const Operation&, const std::string& engine_text) override { return engine_text; }
};

class GlooBackend final : public c10d::ProcessGroupGloo {
 public:
  GlooBackend(const BackendRequest& request, c10::intrusive_ptr<Options> engine_options)
      : ProcessGroupGloo(request.store, request.rank, request.world_size, std::move(engine_options)),
        watch_(request.watch ? request.watch : std::make_shared<EngineText>()),
        group_name_(request.group_name),
        host_(host_name()) {}

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return track("broadcast", tensors, ProcessGroupGloo::broadcast(tensors, opts));
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    if (opts.reduceOp != c10d::ReduceOp::AVG) {
      return track("all_reduce", tensors, ProcessGroupGloo::allreduce(tensors, opts));
    }
    auto work = ProcessGroupGloo::allreduce(tensors, as_sum(opts));
    return track("all_reduce", tensors, std::move(work), divide_later(tensors));
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return track("all_reduce_sparse", {}, ProcessGroupGloo::allreduce_sparse(tensors, opts));
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return track("all_reduce_coalesced", tensors, ProcessGroupGloo::allreduce_coalesced(tensors, opts));
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return track("reduce", tensors, ProcessGroupGloo::reduce(tensors, opts));
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return track("all_gather", inputs, ProcessGroupGloo::allgather(outputs, inputs, opts));
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override {
    return track("all_gather_single", {input}, ProcessGroupGloo::_allgather_base(output, input, opts));
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    return track("gather", inputs, ProcessGroupGloo::gather(outputs, inputs, opts));
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override {
    return track("scatter", outputs, ProcessGroupGloo::scatter(outputs, inputs, opts));
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    const bool average = opts.reduceOp == c10d::ReduceOp::AVG;
    auto work = ProcessGroupGloo::reduce_scatter(outputs, inputs, average ? as_sum(opts) : opts);
    return track("reduce_scatter", outputs, std::move(work), average ? divide_later(outputs) : nullptr);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    const bool average = opts.reduceOp == c10d::ReduceOp::AVG;
    auto work = ProcessGroupGloo::_reduce_scatter_base(output, input, average ? as_sum(opts) : opts);
    return track("reduce_scatter_single", {output}, std::move(work), average ? divide_later({output}) : nullptr);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override {
    return track("all_to_all_single", {input},
                 ProcessGroupGloo::alltoall_base(output, input, output_splits, input_splits, opts));
  }
  WorkPtr send(Tensors& tensors, int dst, int tag) override {
    return track("send", tensors, ProcessGroupGloo::send(tensors, dst, tag));
  }
  WorkPtr recv(Tensors& tensors, int src, int tag) override {
    return track("recv", tensors, ProcessGroupGloo::recv(tensors, src, tag));
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return track("recv", tensors, ProcessGroupGloo::recvAnysource(tensors, tag));
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return track("barrier", {}, ProcessGroupGloo::barrier(opts));
  }

 private:
  template <class EngineOptions>
  static EngineOptions as_sum(EngineOptions opts) {
    opts.reduceOp = c10d::ReduceOp::SUM;
    return opts;
  }

  std::function<void()> divide_later(Tensors tensors) const {
    return [tensors, size = getSize()]() mutable {
      for (auto& tensor : tensors) {
        if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) {
          tensor.div_(size, "trunc");
        } else {
          tensor.div_(size);
        }
      }
    };
  }

  WorkPtr track(const char* name, const Tensors& tensors, WorkPtr work, std::function<void()> after = {}) {
    Operation operation{.name = name,
                        .sequence = ++sequence_,
                        .group = group_name_,
                        .rank = getRank(),
                        .world_size = getSize(),
                        .host = host_,
                        .backend = "gloo"};
    for (const auto& tensor : tensors)
      operation.num_bytes += tensor.is_sparse() ? 0 : static_cast<int64_t>(tensor.nbytes());
    if (!tensors.empty()) operation.dtype = dtype_name(tensors.front());
    return c10::make_intrusive<TrackedWork>(std::move(work), std::move(operation), watch_, std::move(after));
  }

  std::shared_ptr<OperationWatch> watch_;
  std::string group_name_;
  std::string host_;
  uint64_t sequence_ = 0;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const BackendRequest& request) {
  auto engine_options = make_gloo_options(request.timeout);
  engine_options->group_name = request.group_name;
  engine_options->global_ranks_in_group = request.global_ranks;
  auto backend = c10::make_intrusive<GlooBackend>(request, std::move(engine_options));
  backend->setSequenceNumberForGroup();
  return backend;
}

}  // namespace cohort::comm
