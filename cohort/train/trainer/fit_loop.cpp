#include "cohort/train/trainer/fit_loop.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/train/logging/close_quietly.h"
#include "cohort/train/run/finite_check.h"
#include "cohort/train/trainer/stage_checks.h"

namespace cohort::train::detail {
namespace {

void check_has_batches(int64_t num_batches) {
  TORCH_CHECK_VALUE(num_batches > 0,
                    "[cohort] Trainer: an epoch has no batch to train on\n"
                    "  hint: check the dataset's size, drop_last and limit_train_batches");
}

// The optimizer need not have all parameters of a model.
std::vector<at::Tensor> parameters_of(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

}  // namespace

FitLoop::FitLoop(TrainerCore& core, ErasedTask& task, BatchFeed& train, BatchFeed* validation)
    : core_(core),
      position_(core.position()),
      task_(task),
      train_(train),
      validation_(core.options().limit_val_batches.is_nothing() ? nullptr : validation),
      options_(core.options()),
      losses_(core.place().device),
      state_(core, task, train, losses_.of_epoch()),
      checkpoints_(core, state_),
      validations_(options_, validation_ != nullptr),
      schedules_(core, task.schedulers),
      report_(core) {}

void FitLoop::check_task() const {
  TORCH_CHECK_VALUE(task_.optimizer,
                    "[cohort] Trainer: fit needs an optimizer, and the task has none\n"
                    "  hint: give it one: Task{.model = net, .loss = cross_entropy, .optimizer = &optimizer}");
  TORCH_CHECK_VALUE(options_.max_epochs || options_.max_steps || options_.max_time,
                    "[cohort] Trainer: fit has no limit\n  hint: set max_epochs, max_steps or max_time");
}

void FitLoop::share_data() {
  const bool overfits = options_.overfit_batches.is_fraction() || options_.overfit_batches.batches() > 0;
  if (overfits) overfit();
  shard_samples(train_, core_.feed_settings(), SampleSharding::kEqually);
  if (validation_) shard_samples(*validation_, core_.feed_settings(), SampleSharding::kOnce);
}

// Replaces the loader's own sampler, as it may draw another order each time.
void FitLoop::overfit() {
  auto options = train_.options();
  options.shuffle = false;
  const bool has_sampler = std::exchange(options.sampler, nullptr) != nullptr;
  train_.set_options(std::move(options));
  if (has_sampler && core_.place().rank == 0) {
    base::log_warning(
        "Trainer: with overfit_batches the loader's own sampler is left out: samples come in their order");
  }
}

FitResult FitLoop::run() {
  check_task();
  position_.begin(options_.gradient_accumulation_steps);
  core_.attach(task_);
  if (validation_) check_can_evaluate(task_);
  share_data();
  if (validation_) check_batches(core_, *validation_, "validation");
  core_.progress().begin_run(options_.max_epochs, core_.strategy().communication_time().has_value());
  checkpoints_.resume();
  core_.tell_if_all_is_done();
  core_.open_logger();
  first_samples_ = position_.samples();
  communication_ = core_.strategy().communication_time().value_or(std::chrono::nanoseconds(0));
  core_.clock().begin();
  try {
    core_.tell(&Callback::on_fit_start);
    run_epochs();
    checkpoints_.finish();
    core_.tell(&Callback::on_fit_end);
  } catch (const std::exception& error) {
    core_.progress().end_run();
    train_.stop();
    close_quietly([&] { core_.metrics().flush(); });  // writes the numbers from before the failure
    core_.tell(&Callback::on_exception, error);
    throw;
  }
  core_.progress().end_run();
  core_.progress().print_summary();
  core_.metrics().flush();
  return result();
}

void FitLoop::run_epochs() {
  // Only if the module itself is in evaluation mode: if it is not, some of its parts may be frozen in that mode.
  if (!core_.strategy().net().is_training()) core_.strategy().net().train();
  core_.optimizer().zero_grad();
  core_.strategy().drop_gradients();
  if (position_.batch() == 0) state_.restore_random_numbers();
  while (!is_over()) run_epoch();
}

// Returns the number of batches of the epoch, the same on all ranks.
std::optional<int64_t> FitLoop::plan_epoch() {
  auto own = train_.num_batches();
  knows_size_ = own.has_value();
  if (own && shards_remaining_samples(train_)) *own += position_.batch();  // the sampler counts only what is left
  const auto wanted = limited(options_.limit_train_batches, own, "limit_train_batches");
  if (core_.place().world_size == 1) return wanted;
  const auto numbers = core_.largest({wanted.value_or(-1), -wanted.value_or(-1)});
  TORCH_CHECK_VALUE(numbers[0] == -numbers[1], "[cohort] Trainer: this rank has ", wanted.value_or(-1),
                    " batches an epoch, but others have from ", -numbers[1], " to ", numbers[0],
                    ", so some would wait forever\n  hint: give the loader a DistributedSampler, or no sampler, so "
                    "that the Trainer shards the data");
  return wanted;
}

void FitLoop::run_epoch() {
  const bool goes_on = position_.batch() > 0;
  train_.set_epoch(position_.epoch());
  num_batches_ = plan_epoch();
  if (num_batches_) check_has_batches(*num_batches_);
  if (task_.pipeline && num_batches_) check_last_batch(core_, *task_.pipeline, train_, *num_batches_);
  validations_.begin_epoch(num_batches_);
  if (!goes_on) losses_.begin_epoch();
  train_.start();
  if (goes_on) state_.restore_random_numbers();
  report_.begin(num_batches_);
  core_.tell(&Callback::on_train_epoch_start);
  bool has_batch = take_batch();
  while (has_batch) {
    train_batch();
    if (losses_.num_batches() == 0 && is_over()) break;
    has_batch = take_batch();
  }
  const bool is_whole = !has_batch || (num_batches_ && position_.batch() >= *num_batches_);
  check_has_batches(position_.batch());
  train_.stop();
  if (losses_.num_batches() != 0) {  // the data ended within a step, which is dropped
    core_.optimizer().zero_grad();
    core_.strategy().drop_gradients();
    losses_.end_step();
  }
  if (is_whole) {
    train_.end_epoch();
    finish_epoch();
  } else {
    report_.end(losses_, is_whole, /*has_validated=*/false);
  }
}

// Returns false if the epoch is over on all ranks.
bool FitLoop::take_batch() {
  core_.clock().lap(StepPart::kOther);
  if (num_batches_ && position_.batch() >= *num_batches_) {
    const bool is_cut = !options_.limit_train_batches.is_whole();
    if (!is_cut) train_.next();  // so that the loader knows that the epoch is over
    return false;
  }
  bool has_batch = train_.next();
  TORCH_CHECK(has_batch || !knows_size_, "[cohort] Trainer: the loader gave ", position_.batch(),
              " batches, but its size is ", num_batches_.value_or(0));
  if (!knows_size_) has_batch = core_.largest({has_batch ? 0 : 1})[0] == 0;
  core_.clock().lap(StepPart::kData);
  return has_batch;
}

CheckedStep FitLoop::checked_step(int64_t batch) const {
  return {.step = position_.step(), .epoch = position_.epoch(), .batch = batch, .rank = core_.place().rank};
}

void FitLoop::check_finite(const StepOutput& output) {
  if (options_.finite_check == FiniteCheck::kNone) return;
  // With scaled gradients, infinities are expected in gradients, but not in the loss.
  const bool is_logged = (position_.step() + 1) % options_.log_every_n_steps == 0;
  if (!core_.place().device.is_cpu() && !is_logged && options_.finite_check == FiniteCheck::kLoss) return;
  if (std::isfinite(output.loss.item<double>())) return;
  NamedTensors tensors;
  size_t number = 0;
  for (const auto& tensor : train_.tensors())
    tensors.emplace_back(fmt::format("tensor {} of the batch", number++), tensor);
  for (const auto& [name, parameter] : core_.strategy().named_parameters())
    tensors.emplace_back(fmt::format("parameter \"{}\"", name), parameter);
  for (const auto& entry : core_.strategy().net().named_buffers())
    tensors.emplace_back(fmt::format("buffer \"{}\"", entry.key()), entry.value());
  tensors.emplace_back("the model's output", output.output);
  check_loss(output.loss, checked_step(position_.batch()), tensors);
}

void FitLoop::train_batch() {
  auto& clock = core_.clock();
  core_.tell(&Callback::on_train_batch_start, position_.batch());
  const bool is_last = num_batches_ && position_.batch() + 1 == *num_batches_;
  const bool is_step = losses_.num_batches() + 1 == position_.accumulation() || is_last;
  clock.lap(StepPart::kOther);
  const StepOutput output = run_pass(core_, task_, train_, is_step);
  losses_.add(loss_number(core_, output.loss), train_.batch_size());
  check_finite(output);
  clock.lap(StepPart::kForward);
  const auto divisor = static_cast<double>(position_.accumulation());
  if (!task_.pipeline) core_.precision().backward(position_.accumulation() == 1 ? output.loss : output.loss / divisor);
  clock.lap(StepPart::kBackward);
  StepReport report{
      .loss = output.loss.detach(), .batch = position_.batch(), .num_samples = train_.batch_size(), .is_step = is_step};
  train_.drop();
  position_.end_batch(report.num_samples * core_.place().num_data_ranks);
  if (is_step) step_optimizer();
  clock.lap(StepPart::kStep);
  after_batch(report);
}

void FitLoop::step_optimizer() {
  auto& optimizer = core_.optimizer();
  const bool looks = options_.gradient_clip_norm || options_.gradient_clip_value || !options_.callbacks.empty() ||
                     (options_.finite_check == FiniteCheck::kGradients && !core_.precision().scales());
  if (looks) core_.precision().unscale(optimizer);
  if (options_.finite_check == FiniteCheck::kGradients && !core_.precision().scales()) {
    check_gradients(core_.strategy().named_parameters(), checked_step(position_.batch() - 1));
  }
  if (options_.gradient_clip_norm) {
    const auto parameters = parameters_of(optimizer);
    const double norm = *options_.gradient_clip_norm;
    task_.pipeline ? task_.pipeline->clip_grad_norm_(parameters, norm)
                   : cohort::nn::utils::clip_grad_norm_(parameters, norm);
  }
  if (options_.gradient_clip_value) {
    cohort::nn::utils::clip_grad_value_(parameters_of(optimizer), *options_.gradient_clip_value);
  }
  core_.tell(&Callback::on_before_optimizer_step);
  const bool was_step = core_.precision().step(optimizer);
  optimizer.zero_grad();
  position_.end_step();
  if (was_step) schedules_.after(Schedule::Interval::kStep);
}

void FitLoop::after_batch(const StepReport& report) {
  core_.tell(&Callback::on_train_batch_end, report);
  if (report.is_step) {
    const auto waited = core_.strategy().communication_time();
    if (waited) core_.clock().move_to_communication(*waited - std::exchange(communication_, *waited));
    report_.after_step(losses_);
    losses_.end_step();
  }
  if (validations_.is_due(position_, /*is_end_of_epoch=*/false)) validate(/*is_end_of_epoch=*/false);
  if (report.is_step) checkpoints_.after_step();
}

void FitLoop::validate(bool is_end_of_epoch) {
  report_.leave_out([&] {
    core_.tell(&Callback::on_validation_start);
    const Metrics values = evaluate(core_, task_, *validation_, "validation");
    validations_.note(position_);
    core_.record(values);
    if (!is_end_of_epoch) {  // at its end the epoch's last line has it
      std::string text = fmt::format("epoch {}, step {}:", position_.epoch() + 1, position_.step());
      for (const auto& [name, value] : values) text += fmt::format("  {} {:.4g}", name, value);
      core_.progress().print(text);
    }
    core_.tell(&Callback::on_validation_end, values);
  });
  agree_on_stop();
}

void FitLoop::finish_epoch() {
  const bool validates = validations_.is_due(position_, /*is_end_of_epoch=*/true);
  if (validates) validate(/*is_end_of_epoch=*/true);
  report_.end(losses_, /*is_whole=*/true, validates);
  schedules_.after(Schedule::Interval::kEpoch);
  core_.tell(&Callback::on_train_epoch_end);
  agree_on_stop();
  if (validations_.has_validated() && !std::exchange(has_checked_monitors_, true)) check_monitors();
  position_.end_epoch();
  checkpoints_.after_epoch();
}

// Stops all ranks if one stops, as the others would wait for it.
void FitLoop::agree_on_stop() {
  const auto& place = core_.place();
  const bool stops = position_.is_stopped();
  const int64_t first = place.world_size - core_.largest({stops ? place.world_size - place.rank : 0}).front();
  if (!stops && first < place.world_size) position_.stop(fmt::format("stop on rank {}", first));
}

// Runs after callbacks have had an epoch to log numbers of their own. Rank 0 has all numbers.
void FitLoop::check_monitors() {
  auto monitors = schedules_.monitors();
  if (checkpoints_.needs_monitor()) monitors.insert(monitors.begin(), options_.checkpoint.monitor);
  std::vector<std::string> names{"train/loss", "train/epoch_loss", "lr", "epoch"};  // perhaps not logged yet
  for (const auto& [name, value] : core_.metrics().all()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  for (const auto& monitor : monitors) {
    const bool is_there = std::find(names.begin(), names.end(), monitor) != names.end();
    if (core_.largest({core_.place().rank == 0 && !is_there ? 1 : 0}).front() == 0) continue;
    TORCH_CHECK_VALUE(false, "[cohort] Trainer: there is no number \"", monitor,
                      "\", by which the best checkpoint or the learning rate is chosen",
                      base::did_you_mean(monitor, names), "\n  hint: set monitor to one of \"",
                      fmt::format("{}", fmt::join(names, "\", \"")), "\", or give the task a metric of this name");
  }
}

// Decides by rank 0's clock.
bool FitLoop::time_is_up() {
  if (!options_.max_time) return false;
  const bool is_up = core_.place().rank == 0 && std::chrono::steady_clock::now() >= time_limit_;
  return core_.largest({is_up ? 1 : 0})[0] != 0;
}

bool FitLoop::is_over() {
  if (position_.is_stopped()) return true;
  if (checkpoints_.stop_requested()) {
    position_.stop("signal");
  } else if (options_.max_steps && position_.step() >= *options_.max_steps) {
    position_.stop("max_steps");
  } else if (options_.max_epochs && position_.epoch() >= *options_.max_epochs) {
    position_.stop("max_epochs");
  } else if (time_is_up()) {
    position_.stop("max_time");
  }
  return position_.is_stopped();
}

FitResult FitLoop::result() const {
  FitResult result{.epochs = position_.epoch(),
                   .steps = position_.step(),
                   .reason = position_.stop_reason(),
                   .metrics = core_.metrics().all(),
                   .times = core_.clock().times()};
  const auto training = result.times.total() - result.times[StepPart::kOther];
  const double seconds = std::chrono::duration<double>(training).count();
  if (seconds > 0.0) {
    result.samples_per_second = static_cast<double>(position_.samples() - first_samples_) / seconds;
  }
  return result;
}

}  // namespace cohort::train::detail
