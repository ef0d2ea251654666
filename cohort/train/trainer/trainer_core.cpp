#include "cohort/train/trainer/trainer_core.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/base/numbers/given_count.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/group/world.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/train/metrics/numbers_over_ranks.h"
#include "cohort/train/run/seed_everything.h"
#include "cohort/train/trainer/callback.h"
#include "cohort/train/trainer/stage_checks.h"

namespace cohort::train::detail {
namespace {

[[noreturn]] void refuse(const std::string& text) { C10_THROW_ERROR(ValueError, "[cohort] Trainer: " + text); }

void check_numbers(const TrainerOptions& options) {
  const auto wrong = base::count_error({{"max_epochs", options.max_epochs},
                                        {"max_steps", options.max_steps},
                                        {"max_time", options.max_time},
                                        {"checkpoint.every_steps", options.checkpoint.every_steps},
                                        {"checkpoint.every_epochs", options.checkpoint.every_epochs},
                                        {"checkpoint.every", options.checkpoint.every},
                                        {"checkpoint.memory_every_steps", options.checkpoint.memory_every_steps},
                                        {"checkpoint.keep_last", options.checkpoint.keep_last},
                                        {"fsdp_replicas", options.fsdp_replicas}});
  if (wrong) refuse(*wrong);
  if (options.fast_dev_run < 0) {
    refuse(fmt::format("fast_dev_run is not negative, but got {}\n  hint: use 0 for none", options.fast_dev_run));
  }
  const std::pair<const char*, int64_t> positive[] = {
      {"gradient_accumulation_steps", options.gradient_accumulation_steps},
      {"check_val_every_n_epoch", options.check_val_every_n_epoch},
      {"log_every_n_steps", options.log_every_n_steps}};
  for (const auto& [name, value] : positive) {
    if (value < 1) refuse(fmt::format("{} is at least 1, but got {}", name, value));
  }
}

void check_limit(const char* name, const BatchLimit& limit) {
  if (limit.is_fraction() && !(limit.fraction() >= 0.0 && limit.fraction() <= 1.0)) {
    refuse(fmt::format("{} is a fraction from 0.0 to 1.0 or a whole number of batches, but got {}", name,
                       limit.fraction()));
  }
  if (!limit.is_fraction() && limit.batches() < 0) {
    refuse(fmt::format("{} is not negative, but got {}\n  hint: use 1.0 for all batches, 0 for none", name,
                       limit.batches()));
  }
}

TrainerOptions completed(TrainerOptions options) {
  // Tells the launcher about refused options before there is a group.
  if (base::get_env("TORCHELASTIC_ERROR_FILE")) comm::install_exit_handlers();
  check_numbers(options);
  check_limit("limit_train_batches", options.limit_train_batches);
  check_limit("limit_val_batches", options.limit_val_batches);
  check_limit("limit_test_batches", options.limit_test_batches);
  check_limit("limit_predict_batches", options.limit_predict_batches);
  check_limit("overfit_batches", options.overfit_batches);
  check_limit("val_check_interval", options.val_check_interval);
  if (options.gradient_clip_norm && options.gradient_clip_value) {
    refuse(
        "gradient_clip_norm and gradient_clip_value exclude each other\n  hint: set only gradient_clip_norm, which "
        "keeps the gradient's direction");
  }
  if (options.overfit_batches.is_fraction() || options.overfit_batches.batches() > 0) {
    options.limit_train_batches = options.limit_val_batches = options.overfit_batches;
  }
  if (options.fast_dev_run > 0) {
    options.limit_train_batches = options.limit_val_batches = options.limit_test_batches =
        options.limit_predict_batches = options.fast_dev_run;
    options.max_epochs = 1;
    options.max_steps = options.fast_dev_run;
    options.log_every_n_steps = 1;
    options.val_check_interval = 1.0;
    options.check_val_every_n_epoch = 1;
    options.checkpoint.folder.clear();
    options.checkpoint.memory_every_steps.reset();
  }
  return options;
}

// Checks the names of strategy and precision before joining a group.
LaunchPlace place_for(const TrainerOptions& options) {
  [[maybe_unused]] const Precision known(options.precision, at::kCPU);
  return take_place(options.strategy);
}

// Collective.
DeviceMesh mesh_of_replicas(const TrainerOptions& options, const LaunchPlace& place) {
  const int replicas = *options.fsdp_replicas;
  if (place.strategy != StrategyKind::kFsdp) {
    refuse(fmt::format("fsdp_replicas = {} is for strategy \"fsdp\", but this is \"{}\"", replicas,
                       name_of(place.strategy)));
  }
  if (options.strategy.fsdp.mesh)
    refuse("fsdp_replicas and strategy.fsdp.mesh exclude each other\n  hint: set only the mesh");
  if (place.world_size % replicas != 0) {
    refuse(
        fmt::format("fsdp_replicas = {}: all replicas have the same number of ranks, but the job has {}\n  hint: use a "
                    "number that divides {}",
                    replicas, place.world_size, place.world_size));
  }
  const auto device_type = c10::DeviceTypeName(place.device.type(), /*lower_case=*/true);
  return init_device_mesh(device_type, {replicas, place.world_size / replicas}, {"dp_replicate", "dp_shard"});
}

// Collective.
std::optional<DeviceMesh> mesh_of_dims(const TrainerOptions& options, const LaunchPlace& place) {
  const auto& dims = options.dims;
  if (dims == parallel::ParallelDims()) return std::nullopt;
  if (place.strategy != StrategyKind::kFsdp) {
    refuse(
        fmt::format("dims are for strategy \"fsdp\", but this is \"{}\"\n  hint: use \"fsdp\" with dims.dp_replicate "
                    "alone for replicas, as in \"ddp\"",
                    name_of(place.strategy)));
  }
  if (options.fsdp_replicas || options.strategy.fsdp.mesh || options.strategy.fsdp.process_group) {
    refuse(
        "dims exclude fsdp_replicas, strategy.fsdp.mesh and strategy.fsdp.process_group\n  hint: use dims.dp_replicate "
        "and dims.dp_shard instead");
  }
  return dims.build_mesh(c10::DeviceTypeName(place.device.type(), /*lower_case=*/true));
}

LaunchPlace on_mesh(LaunchPlace place, const std::optional<DeviceMesh>& mesh) {
  if (!mesh) return place;
  const auto part = parallel::data_shard_of(*mesh);
  place.data_rank = static_cast<int>(part.rank);
  place.num_data_ranks = static_cast<int>(part.num_replicas);
  if (const auto stages = parallel::axis_of(*mesh, "pp")) {
    place.stage = static_cast<int>(stages->local_rank());
    place.num_stages = static_cast<int>(stages->size());
  }
  if (const auto parts = parallel::axis_of(*mesh, "cp")) {
    place.sequence_shard = static_cast<int>(parts->local_rank());
    place.num_sequence_shards = static_cast<int>(parts->size());
  }
  return place;
}

Group stages_of(const std::optional<DeviceMesh>& mesh) {
  const auto stages = mesh ? parallel::axis_of(*mesh, "pp") : std::nullopt;
  return stages ? stages->group() : Group();
}

template <class Number>
std::vector<Number> reduced(const LaunchPlace& place, std::vector<Number> numbers, ReduceOp op) {
  if (place.world_size == 1) return numbers;
  const at::Tensor own = at::tensor(numbers, c10::CppTypeToScalarType<Number>::value);
  const at::Tensor all = numbers_over_ranks(own, {}, place.device, std::move(op));
  std::copy_n(all.const_data_ptr<Number>(), numbers.size(), numbers.begin());
  return numbers;
}

}  // namespace

TrainerCore::TrainerCore(Trainer& trainer, TrainerOptions options)
    : trainer_(trainer),
      options_(completed(std::move(options))),
      place_(place_for(options_)),
      mesh_(mesh_of_dims(options_, place_)),
      precision_(options_.precision, place_.device, stages_of(mesh_)),
      position_(options_.gradient_accumulation_steps),
      progress_(options_.progress, place_.rank == 0, place_.world_size, on_mesh(place_, mesh_).num_data_ranks) {
  if (options_.deterministic) at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  place_ = on_mesh(place_, mesh_);
  if (place_.num_stages > 1 && options_.checkpoint.memory_every_steps) {
    refuse(
        "checkpoint.memory_every_steps and dims.pp exclude each other, as a rank that is lost may have been the only "
        "one with its stage\n  hint: set checkpoint.every_steps to save in files");
  }
  if (options_.seed) seed_everything(*options_.seed + place_.drawing_rank());
  if (mesh_) options_.strategy.fsdp.mesh = parallel::data_parallel_mesh(*mesh_);
  if (options_.fsdp_replicas) options_.strategy.fsdp.mesh = mesh_of_replicas(options_, place_);
}

TrainerCore::~TrainerCore() = default;

void TrainerCore::attach(ErasedTask& task) {
  if (!task.model) refuse("the task's model is null");
  check_pipeline(task);
  check_gradients_are_averaged(*this, *task.model);
  if (task.optimizer && task.optimizer->param_groups().empty()) {
    refuse("the task's optimizer has no parameters\n  hint: construct it with net->parameters()");
  }
  if (!strategy_ || &strategy_->net() != task.model.get()) {
    precision_.convert(*task.model);
    strategy_.reset();  // first release what the previous strategy holds of the model
    strategy_ = make_strategy(task.model, options_.strategy, place_);
  }
  optimizer_ = task.optimizer;
  if (optimizer_) adopt_optimizer(*strategy_, *optimizer_, "Trainer");
}

void TrainerCore::check_pipeline(const ErasedTask& task) const {
  if (!task.pipeline) {
    if (place_.num_stages == 1) return;
    refuse(
        fmt::format("dims.pp = {}, but the task has no pipeline\n  hint: make its model a stage, and let its member "
                    "`pipeline` point to the PipelineSchedule that runs it (pipeline_step.h)",
                    place_.num_stages));
  }
  if (place_.num_stages == 1 && place_.world_size > 1) {
    refuse(
        "the task has a pipeline, but dims.pp does not say on how many ranks\n  hint: use strategy \"fsdp\", and set "
        "dims.pp");
  }
  if (!task.step) {
    refuse(
        "a task with a pipeline needs step(net, batch) and evaluate(net, batch), which run it\n  hint: see "
        "pipeline_step.h");
  }
  for (const auto& metric : task.metrics) {
    if (metric.sums) continue;
    refuse(
        fmt::format("metric \"{}\" has no sums(), but only the ranks with the last stage see outputs\n  hint: see "
                    "task_metric.h for sums() and value()",
                    metric.name));
  }
}

FeedSettings TrainerCore::feed_settings() const {
  return {.rank = place_.data_rank,
          .world_size = place_.num_data_ranks,
          .seed = options_.seed.value_or(0),
          .device = place_.device,
          .shards_samples = options_.use_distributed_sampler};
}

void TrainerCore::each_callback(const std::function<void(Callback&)>& call) const {
  for (const auto& callback : options_.callbacks) call(*callback);
}

std::vector<double> TrainerCore::sums(std::vector<double> numbers) const {
  return reduced(place_, std::move(numbers), ReduceOp::SUM);
}

std::vector<int64_t> TrainerCore::largest(std::vector<int64_t> numbers) const {
  return reduced(place_, std::move(numbers), ReduceOp::MAX);
}

void TrainerCore::tell_if_all_is_done() {
  const bool has_epochs = options_.max_epochs && position_.epoch() >= *options_.max_epochs;
  const bool has_steps = options_.max_steps && position_.step() >= *options_.max_steps;
  if (!has_epochs && !has_steps) return;
  progress_.print(fmt::format(
      "nothing is left to train: all {} are done already; raise the limit to continue, or name another checkpoint "
      "folder to begin a new run",
      has_epochs ? fmt::format("{} epochs", *options_.max_epochs) : fmt::format("{} steps", *options_.max_steps)));
}

bool TrainerCore::is_logged() const {
  return place_.rank == 0 && options_.fast_dev_run == 0 && (!options_.log_folder.empty() || options_.make_logger);
}

void TrainerCore::open_logger() {
  metrics_.close_logger();
  if (is_logged()) metrics_.open_logger(options_, position_.step() + 1);
}

void TrainerCore::log(const Metrics& values) const { metrics_.log(position_.step(), values); }

void TrainerCore::record(const Metrics& values) {
  metrics_.set(values);
  log(values);
}

StepOutput run_forward(TrainerCore& core, const ErasedTask& task, BatchFeed& feed, bool is_training) {
  feed.for_each_tensor([&](at::Tensor& tensor) {
    if (!core.place().device.is_cpu()) tensor = tensor.to(core.place().device, /*non_blocking=*/true);
    tensor = core.precision().input(tensor);
  });
  Strategy& strategy = core.strategy();
  const auto autocast = core.precision().autocast();
  const auto& whole = is_training ? task.step : task.evaluate;
  if (!whole) return task.loss_of(strategy.forward(task.input_of(feed.batch()), task.forward), feed.batch());
  TORCH_CHECK_VALUE(
      strategy.runs_whole_steps(),
      "[cohort] Trainer: strategy \"data_parallel\" splits batches among several replicas of the model, so "
      "the task needs loss(output, target) instead of step(net, batch)\n  hint: use strategy \"ddp\", which runs any "
      "task");
  auto inputs = feed.tensors();
  StepOutput output;
  strategy.run(inputs, [&] {
    size_t next = 0;
    feed.for_each_tensor([&](at::Tensor& tensor) { tensor = inputs[next++]; });
    output = whole(strategy.net(), feed.batch());
    return std::vector<at::Tensor>{output.loss};
  });
  return output;
}

namespace {

struct BackwardAsUsual {
  PipelineSchedule& pipeline;
  ~BackwardAsUsual() { pipeline.set_backward({}); }
};

}  // namespace

StepOutput run_pass(TrainerCore& core, const ErasedTask& task, BatchFeed& feed, bool is_step) {
  core.strategy().set_requires_gradient_sync(is_step);
  if (!task.pipeline) return run_forward(core, task, feed, /*is_training=*/true);
  task.pipeline->set_backward({.scaler = core.precision().scaler(),
                               .num_steps = core.position().accumulation(),
                               .requires_gradient_sync = is_step});
  const BackwardAsUsual after{*task.pipeline};
  return run_forward(core, task, feed, /*is_training=*/true);
}

at::Tensor loss_number(const TrainerCore& core, const at::Tensor& loss) {
  TORCH_CHECK_VALUE(loss.defined() && loss.numel() == 1,
                    "[cohort] Trainer: the task's loss must be a tensor of one element, but has ",
                    loss.defined() ? loss.numel() : 0,
                    "\n  hint: return the mean over the batch, as most loss functions do");
  if (is_dtensor(loss)) return loss_number(core, DTensor(loss.detach()).full_tensor());
  const auto device = core.place().device;
  return loss.detach().reshape({}).to(device, at::kDouble, /*non_blocking=*/!device.is_cpu());
}

std::optional<int64_t> limited(const BatchLimit& limit, std::optional<int64_t> num_batches, const char* name) {
  if (limit.is_whole()) return num_batches;
  if (!limit.is_fraction()) return num_batches ? std::min(*num_batches, limit.batches()) : limit.batches();
  TORCH_CHECK_VALUE(num_batches, "[cohort] Trainer: ", name, " is ", limit.fraction(),
                    " of an epoch, but the loader of an iterable dataset does not know how long that is\n"
                    "  hint: give a number of batches");
  return static_cast<int64_t>(static_cast<double>(*num_batches) * limit.fraction());
}

void refuse_missing_loss() {
  refuse("the task's loss is an empty function\n  hint: give it one: Task{.model = net, .loss = cross_entropy, ...}");
}

}  // namespace cohort::train::detail
