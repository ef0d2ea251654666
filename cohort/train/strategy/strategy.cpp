#include "cohort/train/strategy/strategy.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <torch/optim/optimizer.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "cohort/checkpoint/state/module_names.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/data_parallel/data_parallel.h"
#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/module/synchronize.h"
#include "cohort/parallel/module/tensor_tree.h"
#include "cohort/parallel/module/wrapper_base.h"
#include "cohort/parallel/optim/optimizer_kind.h"
#include "cohort/train/strategy/launch_place.h"

namespace cohort::train {
namespace {

using torch::nn::Module;
using Body = std::function<std::vector<at::Tensor>()>;

class ReplicatedStrategy final : public Strategy {
 public:
  ReplicatedStrategy(const std::shared_ptr<Module>& net, ddp::Options options)
      : Strategy(net),
        group_(options.process_group),
        has_own_buffers_(!options.forward_sync_buffers),
        replica_(*net, std::move(options)) {
    replica_.set_ddp_runtime_logging_sample_rate(1);
  }

  void run(std::vector<at::Tensor>&, const Body& body) override {
    if (!at::GradMode::is_enabled()) {
      body();
      return;
    }
    replica_.before_forward();
    replica_.after_forward(outputs_of(body));
    if (replica_.requires_gradient_sync()) ++num_steps_;
  }
  void set_requires_gradient_sync(bool value) override { replica_.set_requires_gradient_sync(value); }
  void synchronize_buffers() override {
    if (has_own_buffers_ || get_world_size(group_) == 1) return;
    const auto buffers = net().buffers();
    if (!buffers.empty()) parallel::broadcast_from(group_ ? group_ : default_group(), buffers, /*source=*/0);
  }
  bool has_own_buffers() const override { return has_own_buffers_; }
  std::optional<std::chrono::nanoseconds> communication_time() const override {
    const auto data = replica_.ddp_logging_data();
    const auto number = [&](const char* name) {
      const auto found = data.ints_map.find(name);
      return found == data.ints_map.end() ? 0 : found->second;
    };
    const int64_t exposed = number("avg_backward_comm_time") - number("avg_backward_compute_comm_overlap_time");
    return std::chrono::nanoseconds(exposed * num_steps_);
  }

 private:
  // If `body` throws, a pass without exchange is over all the same: this rank continues like ranks on which it did not throw.
  std::vector<at::Tensor> outputs_of(const Body& body) {
    try {
      return body();
    } catch (...) {
      if (!replica_.requires_gradient_sync()) replica_.after_forward({});
      throw;
    }
  }

  int64_t num_steps_ = 0;
  Group group_;
  bool has_own_buffers_;
  ddp::Replica replica_;
};

std::vector<std::pair<std::string, at::Tensor>> named_shards_of(const fsdp::ShardedModule& module) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& entry : module.named_shards(/*recurse=*/true)) result.emplace_back(entry.key(), entry.value());
  return result;
}

// Like fsdp::detail::ShardedNet, without the type of the module.
class ShardedWrapper final : public parallel::WrapperBase<Module>, public fsdp::ShardedModule {
 public:
  ShardedWrapper(std::shared_ptr<Module> net, const fsdp::Options& options)
      : WrapperBase<Module>("FullySharded", std::move(net)), ShardedModule(module(), options) {}
  const fsdp::ModuleShare& own_share() const { return share(); }
};

class ShardedStrategy final : public Strategy {
 public:
  ShardedStrategy(const std::shared_ptr<Module>& net, const fsdp::Options& options)
      : Strategy(net), wrapper_(std::make_shared<ShardedWrapper>(net, options)) {}

  Module& module() const override { return *wrapper_; }
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const override {
    return named_shards_of(*wrapper_);
  }
  void adopt(torch::optim::Optimizer& optimizer) const override;
  void run(std::vector<at::Tensor>& inputs, const Body& body) override {
    fsdp::ModuleForward pass(wrapper_->own_share());
    inputs = pass.inputs(std::move(inputs));
    std::vector<at::Tensor> outputs;
    for (const auto& output : body()) {
      if (output.requires_grad()) outputs.push_back(output);
    }
    pass.outputs(outputs);
  }
  at::Tensor forward(const at::Tensor& input, const Forward& forward) override {
    const at::Tensor output = Strategy::forward(input, forward);
    const auto dtype = output_dtype();
    return dtype ? parallel::moved(output, *dtype) : output;
  }
  std::optional<at::ScalarType> output_dtype() const override { return wrapper_->sharding().mp_policy().output_dtype; }
  bool evaluates_together() const override { return true; }
  bool has_own_buffers() const override { return true; }
  void set_requires_gradient_sync(bool value) override {
    if (value) {
      no_sync_.reset();
    } else if (!no_sync_) {
      no_sync_.emplace(*wrapper_);
    }
  }
  // Gradients of passes without a reduction are in the full parameters, which the optimizer does not have.
  void drop_gradients() override {
    wrapper_->reset_iter_state();
    Strategy::drop_gradients();
  }

 private:
  std::shared_ptr<ShardedWrapper> wrapper_;
  std::optional<fsdp::NoSync> no_sync_;
};

void ShardedStrategy::adopt(torch::optim::Optimizer& optimizer) const {
  std::unordered_map<const void*, at::Tensor> shards;
  for (const auto& parameter : fsdp::sharded_parameters(*wrapper_)) {
    shards.emplace(parameter.full.unsafeGetTensorImpl(), parameter.shard);
  }
  for (auto& group : optimizer.param_groups()) {
    for (auto& parameter : group.params()) {
      const auto found = shards.find(parameter.unsafeGetTensorImpl());
      if (found == shards.end()) continue;
      TORCH_CHECK_VALUE(
          optimizer.state().empty(),
          "[cohort] Trainer: the optimizer has made steps with full parameters, so it cannot continue with the shards "
          "that strategy \"fsdp\" makes of them\n  hint: construct a new optimizer before fit");
      parameter = found->second;
    }
  }
}

class SingleStrategy final : public Strategy {
 public:
  using Strategy::Strategy;
  std::optional<std::chrono::nanoseconds> communication_time() const override { return std::chrono::nanoseconds(0); }
};

// Finds the module itself, each of a rank's stages, or their parts.
void add_outermost_sharded(Module& net, std::vector<fsdp::ShardedModule*>& found) {
  if (auto* const sharded = dynamic_cast<fsdp::ShardedModule*>(&net)) return found.push_back(sharded);
  for (const auto& child : net.children()) add_outermost_sharded(*child, found);
}

// The program has partitioned the model: there are no copies of it, or it is a stage of a pipeline.
class PartitionedStrategy final : public Strategy {
 public:
  explicit PartitionedStrategy(const std::shared_ptr<Module>& net) : Strategy(net) {
    add_outermost_sharded(*net, sharded_);
  }
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const override;
  bool evaluates_together() const override { return true; }
  bool has_own_buffers() const override { return !sharded_.empty(); }
  void drop_gradients() override {
    for (auto* const module : sharded_) module->reset_iter_state();
    Strategy::drop_gradients();
  }

 private:
  std::vector<fsdp::ShardedModule*> sharded_;
};

// Names are those of the unsharded model; parameters are shards if they have been sharded.
std::vector<std::pair<std::string, at::Tensor>> PartitionedStrategy::named_parameters() const {
  std::unordered_map<const void*, at::Tensor> shards;
  for (const auto& parameter : fsdp::sharded_parameters(net())) {
    shards.emplace(parameter.full.unsafeGetTensorImpl(), parameter.shard);
  }
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& [name, tensor, is_parameter] : checkpoint::detail::tensors_of(net())) {
    if (!is_parameter) continue;
    const auto found = shards.find(tensor.unsafeGetTensorImpl());
    result.emplace_back(name, found == shards.end() ? tensor : found->second);
  }
  return result;
}

class DataParallelStrategy final : public Strategy {
 public:
  DataParallelStrategy(const std::shared_ptr<Module>& net, cohort::nn::parallel::Placement placement)
      : Strategy(net), placement_(std::move(placement)), replicas_(net, placement_.devices) {
    net->to(placement_.devices.front());
  }

  at::Tensor forward(const at::Tensor& input, const Forward& forward) override {
    namespace lib = cohort::nn::parallel;
    if (placement_.devices.size() < 2) return forward(net(), input);
    lib::check_module_device(net(), placement_.devices.front());
    auto parts = lib::scatter(std::tuple(input), placement_.devices, placement_.dim);
    const lib::Devices used(placement_.devices.begin(),
                            placement_.devices.begin() + static_cast<int64_t>(parts.size()));
    const auto modules =
        lib::detail::as_type<Module>(replicas_.take(used.size(), !at::GradMode::is_enabled()).modules(), used.size());
    const auto ends = lib::detail::ends_of_backward(modules, parts, used);
    std::vector<at::Tensor> outputs(used.size());
    threads_->run(used, [&](size_t i) { outputs[i] = forward(*modules[i], std::get<0>(parts[i])); });
    lib::GatherLog log;
    const at::Tensor gathered = lib::gather(outputs, placement_.output_device, placement_.dim);
    if (!ends.empty()) lib::run_backward_in_parallel(log.tensors(), ends, threads_);
    return gathered;
  }
  bool runs_whole_steps() const override { return placement_.devices.size() < 2; }

 private:
  cohort::nn::parallel::Placement placement_;
  cohort::nn::parallel::ReplicaCache replicas_;
  std::shared_ptr<cohort::nn::parallel::ReplicaThreads> threads_ =
      std::make_shared<cohort::nn::parallel::ReplicaThreads>();
};

}  // namespace

Strategy::~Strategy() = default;

std::vector<std::pair<std::string, at::Tensor>> Strategy::named_parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& entry : net_->named_parameters()) result.emplace_back(entry.key(), entry.value());
  return result;
}

std::vector<at::Tensor> Strategy::parameters() const {
  std::vector<at::Tensor> result;
  for (auto& [name, parameter] : named_parameters()) result.push_back(std::move(parameter));
  return result;
}

// Moves the optimizer's state of earlier steps to the devices of the parameters.
void Strategy::adopt(torch::optim::Optimizer& optimizer) const {
  const auto* const kind = optim::find_optimizer_kind(optimizer);
  if (!kind) return;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto kept = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (kept == optimizer.state().end()) continue;
      for (const auto& field : kind->state(*kept->second)) {
        const auto* const tensor = std::get_if<at::Tensor*>(&field.place);
        if (tensor && (*tensor)->defined()) **tensor = (*tensor)->to(parameter.device());
      }
    }
  }
}

void Strategy::drop_gradients() {
  for (const auto& parameter : parameters()) parameter.mutable_grad().reset();
}

void Strategy::run(std::vector<at::Tensor>&, const Body& body) { body(); }

at::Tensor Strategy::forward(const at::Tensor& input, const Forward& forward) {
  std::vector<at::Tensor> inputs{input};
  at::Tensor output;
  run(inputs, [&] {
    output = forward(net(), inputs.front());
    return std::vector<at::Tensor>{output};
  });
  return output;
}

void adopt_optimizer(const Strategy& strategy, torch::optim::Optimizer& optimizer, const char* user) {
  strategy.adopt(optimizer);
  std::unordered_set<const void*> known;
  for (const auto& parameter : strategy.parameters()) known.insert(parameter.unsafeGetTensorImpl());
  for (const auto& parameter : fsdp::sharded_parameters(strategy.net())) {
    known.insert(parameter.shard.unsafeGetTensorImpl());
  }
  size_t num_foreign = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (known.count(parameter.unsafeGetTensorImpl()) > 0) return;
      ++num_foreign;
    }
  }
  TORCH_CHECK_VALUE(
      num_foreign == 0, "[cohort] ", user, ": none of the optimizer's ", num_foreign,
      " parameters is one of the model's, so it would train nothing\n"
      "  hint: construct the optimizer with net->parameters() of the trained model, when it has all its parameters");
}

std::unique_ptr<Strategy> make_strategy(std::shared_ptr<Module> net, const StrategyOptions& options,
                                        const detail::LaunchPlace& place) {
  using detail::StrategyKind;
  if (place.strategy == StrategyKind::kDataParallel) {
    return std::make_unique<DataParallelStrategy>(
        net, cohort::nn::parallel::place(place.devices, /*output_device=*/std::nullopt, /*dim=*/0));
  }
  net->to(place.device);
  if (place.strategy == StrategyKind::kDdp) return std::make_unique<ReplicatedStrategy>(net, options.ddp);
  // On a mesh, ranks with shards of the same sequences shard parameters, too, though they read the same data.
  const bool has_copies = options.fsdp.mesh || place.num_data_ranks > 1 || place.world_size == 1;
  const bool is_partitioned = !has_copies || place.num_stages > 1;
  if (place.strategy == StrategyKind::kFsdp && is_partitioned) return std::make_unique<PartitionedStrategy>(net);
  if (place.strategy == StrategyKind::kFsdp) return std::make_unique<ShardedStrategy>(net, options.fsdp);
  return std::make_unique<SingleStrategy>(net);
}

}  // namespace cohort::train
