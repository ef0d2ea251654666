// A C++ rank of `collectives`: the public calls of cohort, LibTorch's own Gloo, and the roof probe. Commands:
// collective_worker.h.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>

#include "benchmarks/collectives/collective_worker.h"
#include "benchmarks/collectives/gloo_engine.h"
#include "benchmarks/collectives/roof.h"
#include "benchmarks/collectives/tensors.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"

namespace cohort::bench {
namespace {

// Tensors in shared memory are recognized by their storage, so slices are taken from the tensor that owns the memory.
class SharedTensors {
 public:
  std::shared_ptr<std::byte> allocate(Memory memory, size_t num_bytes, const Group& group) {
    const std::vector<int64_t> sizes{static_cast<int64_t>(num_bytes)};
    const auto options = at::TensorOptions().dtype(at::kByte);
    const auto tensor = memory == Memory::kShared ? comm::shm_empty(sizes, options, group) : at::empty(sizes, options);
    auto* data = static_cast<std::byte*>(tensor.mutable_data_ptr());
    tensors_[data] = tensor;
    return {data, [this](std::byte* pointer) { tensors_.erase(pointer); }};
  }
  // Returns the bytes from `data` on.
  at::Tensor slice(std::byte* data, size_t num_bytes) const {
    const auto [start, tensor] = *std::prev(tensors_.upper_bound(data));
    return tensor.narrow(0, data - start, static_cast<int64_t>(num_bytes));
  }

 private:
  std::map<std::byte*, at::Tensor> tensors_;
};

// Calls the public functions on one group.
class CohortEngine : public Engine {
 public:
  CohortEngine(Group group, const SharedTensors& shared) : group_(std::move(group)), shared_(shared) {}

  Call prepare(const CollectiveCase& what, const Buffers& buffers) override {
    const auto plan = plan_buffers(what, 0);
    const auto input = tensor(what, buffers.input, plan.input_bytes);
    const auto output = plan.output_bytes > 0 ? tensor(what, buffers.output, plan.output_bytes) : input;
    const CollectiveOptions options{.group = group_};
    const ReduceOptions sum{.group = group_};
    switch (what.op) {
      case Op::kAllReduce:
        return [=] { all_reduce(input, sum); };
      case Op::kBroadcast:
        return [=] { broadcast(input, group_rank(0), options); };
      case Op::kReduce:
        return [=] { reduce(input, group_rank(0), sum); };
      case Op::kAllGather:
        return [=] { all_gather_single(output, input, options); };
      case Op::kReduceScatter:
        return [=] { reduce_scatter_single(output, input, sum); };
      case Op::kAllToAll:
        return [=] { all_to_all_single(output, input, {}, {}, options); };
      case Op::kSendRecv:
        return ping_pong(input, output);
      case Op::kBarrier:
        break;
    }
    return [barrier_options = BarrierOptions{.group = group_}] { barrier(barrier_options); };
  }

 private:
  at::Tensor tensor(const CollectiveCase& what, std::byte* data, size_t num_bytes) const {
    if (what.memory != Memory::kPrivate) return shared_.slice(data, num_bytes).view(scalar_type(what.dtype));
    return tensor_over(what, data, num_bytes);
  }
  Call ping_pong(const at::Tensor& input, const at::Tensor& output) const {
    const PointToPointOptions options{.group = group_};
    if (get_rank(group_) == 0) {
      return [=] {
        send(input, group_rank(1), options);
        recv(output, group_rank(1), options);
      };
    }
    return [=] {
      recv(output, group_rank(0), options);
      send(input, group_rank(0), options);
    };
  }

  Group group_;
  const SharedTensors& shared_;
};

struct Engines {
  std::vector<std::unique_ptr<Engine>> owned;
  std::map<std::string, Engine*> by_name;
  void add(const std::string& name, std::unique_ptr<Engine> engine) {
    by_name[name] = engine.get();
    owned.push_back(std::move(engine));
  }
};

// A group reads the variable when it is made.
Group group_without_trace() {
  base::set_env("TORCH_FR_BUFFER_SIZE", "0");
  const Group group = new_group({}, {.backend = "shm"});
  barrier({.group = group});
  base::unset_env("TORCH_FR_BUFFER_SIZE");
  return group;
}

void serve(int rank, const std::string& commands, const std::string& ours_backend, const std::string& gloo_store) {
  const Group ours = default_group();
  SharedTensors shared;
  Engines engines;
  engines.add("ours", std::make_unique<CohortEngine>(ours, shared));
  engines.add("gloo", std::make_unique<GlooEngine>(gloo_store, rank, get_world_size()));
  if (ours_backend == "shm") engines.add("no-trace", std::make_unique<CohortEngine>(group_without_trace(), shared));
  for (const auto& style : all_roof_styles()) engines.add(style, std::make_unique<Roof>(rank, parse_roof_style(style)));
  const BarrierOptions barrier_options{.group = ours};
  CollectiveWorker worker({.rank = rank,
                           .engines = engines.by_name,
                           .allocate =
                               [&](Memory memory, size_t num_bytes) {
                                 return memory == Memory::kPrivate ? allocate_private(num_bytes)
                                                                   : shared.allocate(memory, num_bytes, ours);
                               },
                           .barrier = [&] { barrier(barrier_options); }});
  serve_commands(commands, [&](const std::string& command) { return worker.answer(command); });
}

}  // namespace

int run_collectives_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  InitOptions options;
  options.world_size = std::stoi(arguments.at(0));
  options.backend = arguments.at(1);
  options.rank = std::stoi(arguments.at(2));
  options.init_method = arguments.at(4);
  options.shared_allocator = options.backend == "shm";  // private tensors use none of LibTorch's allocators
  init_process_group(options);
  const std::string path = options.init_method.substr(std::string("file://").size());
  serve(options.rank, arguments.at(3), options.backend, path + "-gloo");
  destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
