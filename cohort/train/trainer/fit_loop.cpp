#include "cohort/train/trainer/fit_loop.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/base/count.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/train/logging/log_errors.h"
#include "cohort/train/trainer/finite_check.h"
#include "cohort/train/trainer/stage_checks.h"

namespace cohort::train::detail {
namespace {

void check_has_batches(int64_t num_batches) {
  TORCH_CHECK_VALUE(num_batches > 0,
                    "[cohort] Trainer: an epoch has no batch to train on\n"
                    "  hint: look at the data set's size, drop_last and limit_train_batches");
}

// Of a model the optimizer need not have all.
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
      task_(task),
      train_(train),
      validation_(core.options.limit_val_batches.is_nothing() ? nullptr : validation),
      options_(core.options),
      epoch_loss_(at::zeros({2}, at::TensorOptions(at::kDouble).device(core.place.device))),
      state_(core, task, train, epoch_loss_),
      system_({.gpu = core.is_logged()}),
      monitor_saved_(core.times_set(options_.checkpoint.monitor)) {
  for (const auto& schedule : task.schedulers) schedule_seen_.push_back(core.times_set(schedule.options.monitor));
}

void FitLoop::check_task() const {
  TORCH_CHECK_VALUE(task_.optimizer,
                    "[cohort] Trainer: fit needs an optimizer, and the task has none\n"
                    "  hint: Task{.model = net, .loss = cross_entropy, .optimizer = &optimizer}");
  TORCH_CHECK_VALUE(options_.max_epochs > 0 || options_.max_steps > 0 || options_.max_time.count() > 0,
                    "[cohort] Trainer: nothing says when training ends\n  hint: set max_epochs, max_steps or max_time");
}

void FitLoop::share_data() {
  const bool overfits = options_.overfit_batches.is_fraction() || options_.overfit_batches.batches() > 0;
  if (overfits) overfit();
  share_out(train_, core_.feed_settings(), Share::kEqually);
  if (validation_) share_out(*validation_, core_.feed_settings(), Share::kOnce);
}

// A sampler of the loader's own may draw another order each time.
void FitLoop::overfit() {
  auto options = train_.options();
  options.shuffle = false;
  const bool has_sampler = std::exchange(options.sampler, nullptr) != nullptr;
  train_.set_options(std::move(options));
  if (has_sampler && core_.place.rank == 0) {
    base::log_warning(
        "Trainer: with overfit_batches the loader's own sampler is left out: samples come in their order");
  }
}

FitResult FitLoop::run() {
  check_task();
  core_.stop_reason.clear();
  core_.counters = {};
  core_.accumulation = options_.accumulate_grad_batches;
  core_.attach(task_);
  if (validation_) check_can_evaluate(task_);
  share_data();
  if (validation_) check_batches(core_, *validation_, "validation");
  core_.progress.begin_run(options_.max_epochs, core_.strategy->communication_time().has_value());
  resume();
  core_.tell_if_all_is_done();
  core_.open_logger();
  first_samples_ = core_.counters.samples;
  communication_ = core_.strategy->communication_time().value_or(std::chrono::nanoseconds(0));
  core_.clock.begin();
  try {
    core_.each_callback([&](Callback& callback) { callback.on_fit_start(core_.trainer); });
    run_epochs();
    save(/*is_end_of_run=*/true);
    core_.each_callback([&](Callback& callback) { callback.on_fit_end(core_.trainer); });
  } catch (const std::exception& error) {
    core_.progress.end_run();
    train_.stop();
    if (core_.logger) close_quietly([&] { core_.logger->flush(); });  // the numbers before the failure
    core_.each_callback([&](Callback& callback) { callback.on_exception(core_.trainer, error); });
    throw;
  }
  core_.progress.end_run();
  core_.progress.print_summary();
  if (core_.logger) core_.logger->flush();
  return result();
}

void FitLoop::tell_where(const std::string& what) {
  core_.progress.print(
      fmt::format("goes on after {} (epoch {}, batch {})", what, core_.counters.epoch, core_.counters.batch));
}

void FitLoop::run_epochs() {
  // As a whole, unless it is there: parts of it may be frozen in the other mode.
  if (!core_.strategy->net().is_training()) core_.strategy->net().train();
  core_.optimizer->zero_grad();
  core_.strategy->drop_gradients();
  if (core_.counters.batch == 0) state_.restore_random_numbers();
  while (!is_over()) run_epoch();
}

// Batches of the epoch, alike on all ranks.
std::optional<int64_t> FitLoop::plan_epoch() {
  auto own = train_.num_batches();
  knows_size_ = own.has_value();
  if (own && shares_out_rests(train_)) *own += core_.counters.batch;  // it counts the rest alone
  const auto wanted = limited(options_.limit_train_batches, own, "limit_train_batches");
  if (core_.place.world_size == 1) return wanted;
  const auto numbers = core_.largest({wanted.value_or(-1), -wanted.value_or(-1)});
  TORCH_CHECK_VALUE(numbers[0] == -numbers[1], "[cohort] Trainer: this rank has ", wanted.value_or(-1),
                    " batches an epoch, but others have from ", -numbers[1], " to ", numbers[0],
                    ", so some would wait for ever\n  hint: a DistributedSampler for the loader, or none, so that the "
                    "Trainer shares the data out");
  return wanted;
}

void FitLoop::run_epoch() {
  const bool goes_on = core_.counters.batch > 0;
  train_.set_epoch(core_.counters.epoch);
  num_batches_ = plan_epoch();
  if (num_batches_) check_has_batches(*num_batches_);
  if (task_.pipeline && num_batches_) check_last_batch(core_, *task_.pipeline, train_, *num_batches_);
  check_interval();
  if (!goes_on) epoch_loss_.zero_();
  validated_at_ = -1;
  train_.start();
  if (goes_on) state_.restore_random_numbers();
  begin_progress();
  core_.each_callback([&](Callback& callback) { callback.on_train_epoch_start(core_.trainer); });
  bool has_batch = take_batch();
  while (has_batch) {
    train_batch();
    if (window_ == 0 && is_over()) break;
    has_batch = take_batch();
  }
  const bool is_whole = !has_batch || (num_batches_ && core_.counters.batch >= *num_batches_);
  check_has_batches(core_.counters.batch);
  train_.stop();
  if (window_ != 0) {  // an end that nobody knew of: what it left is not a step
    core_.optimizer->zero_grad();
    core_.strategy->drop_gradients();
    window_ = 0;
    window_losses_.clear();
  }
  if (is_whole) {
    train_.end_epoch();
    finish_epoch();
  } else {
    end_progress(is_whole, /*has_validated=*/false);
  }
}

// Of the epoch.
int64_t FitLoop::steps_of(int64_t batches) const { return base::divide_up(batches, core_.accumulation); }

void FitLoop::begin_progress() {
  const auto& counters = core_.counters;
  const int64_t first = steps_of(counters.batch);
  int64_t num_steps = num_batches_ ? steps_of(*num_batches_) : 0;
  if (num_steps > 0 && options_.max_steps > 0) {
    num_steps = std::min(num_steps, first + options_.max_steps - counters.step);
  }
  epoch_began_ = {.at = std::chrono::steady_clock::now(), .samples = counters.samples, .times = core_.clock.times()};
  core_.progress.begin_epoch(counters.epoch, num_steps, first);
}

// False: the epoch is over, on all ranks.
bool FitLoop::take_batch() {
  core_.clock.lap(StepPart::kOther);
  if (num_batches_ && core_.counters.batch >= *num_batches_) {
    const bool is_cut = !options_.limit_train_batches.is_whole();
    if (!is_cut) train_.next();  // so that the loader knows that the epoch is over
    return false;
  }
  bool has_batch = train_.next();
  TORCH_CHECK(has_batch || !knows_size_, "[cohort] Trainer: the loader gave ", core_.counters.batch,
              " batches, but its size is ", num_batches_.value_or(0));
  if (!knows_size_) has_batch = core_.largest({has_batch ? 0 : 1})[0] == 0;
  core_.clock.lap(StepPart::kData);
  return has_batch;
}

CheckedStep FitLoop::checked_step(int64_t batch) const {
  return {.step = core_.counters.step, .epoch = core_.counters.epoch, .batch = batch, .rank = core_.place.rank};
}

void FitLoop::check_finite(const StepOutput& output) {
  if (options_.finite_check == FiniteCheck::kNone) return;
  // With a scale for gradients infinities are expected there, but not in the loss.
  const bool is_logged = (core_.counters.step + 1) % options_.log_every_n_steps == 0;
  if (!core_.place.device.is_cpu() && !is_logged && options_.finite_check == FiniteCheck::kLoss) return;
  if (std::isfinite(output.loss.item<double>())) return;
  NamedTensors tensors;
  size_t number = 0;
  for (const auto& tensor : train_.tensors())
    tensors.emplace_back(fmt::format("tensor {} of the batch", number++), tensor);
  for (const auto& [name, parameter] : core_.strategy->named_parameters())
    tensors.emplace_back(fmt::format("parameter \"{}\"", name), parameter);
  for (const auto& entry : core_.strategy->net().named_buffers())
    tensors.emplace_back(fmt::format("buffer \"{}\"", entry.key()), entry.value());
  tensors.emplace_back("the model's output", output.output);
  check_loss(output.loss, checked_step(core_.counters.batch), tensors);
}

void FitLoop::train_batch() {
  auto& clock = core_.clock;
  core_.each_callback([&](Callback& callback) { callback.on_train_batch_start(core_.trainer, core_.counters.batch); });
  const bool is_last = num_batches_ && core_.counters.batch + 1 == *num_batches_;
  const bool is_step = window_ + 1 == core_.accumulation || is_last;
  clock.lap(StepPart::kOther);
  const StepOutput output = run_pass(core_, task_, train_, is_step);
  note_loss(output);
  check_finite(output);
  clock.lap(StepPart::kForward);
  const auto divisor = static_cast<double>(core_.accumulation);
  if (!task_.pipeline) core_.precision.backward(core_.accumulation == 1 ? output.loss : output.loss / divisor);
  clock.lap(StepPart::kBackward);
  StepReport report{.loss = output.loss.detach(),
                    .batch = core_.counters.batch,
                    .num_samples = train_.batch_size(),
                    .is_step = is_step};
  train_.drop();
  ++window_;
  ++core_.counters.batch;
  core_.counters.samples += report.num_samples * core_.place.num_data_ranks;
  if (is_step) step_optimizer();
  clock.lap(StepPart::kStep);
  after_batch(report);
}

void FitLoop::note_loss(const StepOutput& output) {
  const auto num_samples = static_cast<double>(train_.batch_size());
  window_losses_.push_back(loss_number(core_, output.loss));
  epoch_loss_[0] += window_losses_.back() * num_samples;
  epoch_loss_[1] += num_samples;
}

void FitLoop::step_optimizer() {
  auto& optimizer = *core_.optimizer;
  const bool looks = options_.gradient_clip_norm || options_.gradient_clip_value || !options_.callbacks.empty() ||
                     (options_.finite_check == FiniteCheck::kGradients && !core_.precision.scales());
  if (looks) core_.precision.unscale(optimizer);
  if (options_.finite_check == FiniteCheck::kGradients && !core_.precision.scales()) {
    check_gradients(core_.strategy->named_parameters(), checked_step(core_.counters.batch - 1));
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
  core_.each_callback([&](Callback& callback) { callback.on_before_optimizer_step(core_.trainer); });
  const bool was_step = core_.precision.step(optimizer);
  optimizer.zero_grad();
  window_ = 0;
  ++core_.counters.step;
  if (was_step) step_schedulers(Schedule::Interval::kStep);
}

void FitLoop::step_schedulers(Schedule::Interval interval) {
  for (size_t i = 0; i < task_.schedulers.size(); ++i) {
    const auto& schedule = task_.schedulers[i];
    if (schedule.interval != interval) continue;
    const int64_t done = interval == Schedule::Interval::kStep ? core_.counters.step : core_.counters.epoch + 1;
    if (done % schedule.options.frequency != 0) continue;
    if (!schedule.takes_metric) {
      schedule.step(0.0);
      continue;
    }
    const int64_t times = core_.times_set(schedule.options.monitor);
    if (times == std::exchange(schedule_seen_[i], times)) continue;
    schedule.step(*core_.metric(schedule.options.monitor));
  }
}

void FitLoop::after_batch(const StepReport& report) {
  core_.each_callback([&](Callback& callback) { callback.on_train_batch_end(core_.trainer, report); });
  if (report.is_step) {
    const auto waited = core_.strategy->communication_time();
    if (waited) core_.clock.move_to_communication(*waited - std::exchange(communication_, *waited));
    log_step();
    window_losses_.clear();
  }
  if (validation_is_due(/*is_end_of_epoch=*/false)) validate(/*is_end_of_epoch=*/false);
  if (!report.is_step) return;
  if (memory_) {
    // Ranks' parts of a buffer must be parts of the same; what is kept is not collective.
    if (core_.counters.step % options_.checkpoint.memory_every == 0) core_.strategy->synchronise_buffers();
    memory_->step(core_.counters.step);
  }
  save_if_due();
}

// The mean over the step's batches on all ranks.
void FitLoop::log_step() {
  const auto& counters = core_.counters;
  const bool is_due = counters.step % options_.log_every_n_steps == 0;
  if (!is_due && !core_.place.device.is_cpu()) return;
  if (!is_due && !core_.progress.is_enabled()) return;
  double sum = 0.0;
  for (const auto& loss : window_losses_) sum += loss.item<double>();
  double mean = sum / static_cast<double>(window_losses_.size());
  const double rate = core_.optimizer->param_groups().front().options().get_lr();
  if (is_due) {
    mean = core_.sums({mean}).front() / core_.place.world_size;
    const Metrics values{{"train/loss", mean}, {"lr", rate}, {"epoch", static_cast<double>(counters.epoch)}};
    core_.set_metrics(values);
    core_.log(values);
  }
  core_.progress.update(steps_of(counters.batch), counters.samples - epoch_began_.samples,
                        {{"loss", mean}, {"lr", rate}}, core_.clock.times() - epoch_began_.times);
}

bool FitLoop::validation_is_due(bool is_end_of_epoch) const {
  if (!validation_ || validated_at_ == core_.counters.batch) return false;
  if ((core_.counters.epoch + 1) % options_.check_val_every_n_epoch != 0) return false;
  const auto& interval = options_.val_check_interval;
  if (interval.is_whole()) return is_end_of_epoch;
  if (is_end_of_epoch) return false;
  const int64_t every =
      interval.is_fraction() ? *limited(interval, num_batches_, "val_check_interval") : interval.batches();
  return core_.counters.batch % std::max<int64_t>(1, every) == 0;
}

// An epoch's speed and shares are those of training, so it begins later by what this takes.
void FitLoop::validate(bool is_end_of_epoch) {
  core_.clock.lap(StepPart::kOther);
  const auto before = core_.clock.times()[StepPart::kOther];
  core_.each_callback([&](Callback& callback) { callback.on_validation_start(core_.trainer); });
  const Metrics values = evaluate(core_, task_, *validation_, "validation");
  validated_at_ = core_.counters.batch;
  core_.set_metrics(values);
  core_.log(values);
  if (!is_end_of_epoch) {  // else it is in the epoch's last line
    std::string text = fmt::format("epoch {}, step {}:", core_.counters.epoch + 1, core_.counters.step);
    for (const auto& [name, value] : values) text += fmt::format("  {} {:.4g}", name, value);
    core_.progress.print(text);
  }
  core_.each_callback([&](Callback& callback) { callback.on_validation_end(core_.trainer, values); });
  core_.clock.lap(StepPart::kOther);
  const auto passed = core_.clock.times()[StepPart::kOther] - before;
  epoch_began_.at += passed;
  epoch_began_.times[StepPart::kOther] += passed;
  has_validated_ = true;
  agree_on_stop();
}

void FitLoop::finish_epoch() {
  const bool validates = validation_is_due(/*is_end_of_epoch=*/true);
  if (validates) validate(/*is_end_of_epoch=*/true);
  end_progress(/*is_whole=*/true, validates);
  step_schedulers(Schedule::Interval::kEpoch);
  core_.each_callback([&](Callback& callback) { callback.on_train_epoch_end(core_.trainer); });
  agree_on_stop();
  if (has_validated_ && !std::exchange(has_checked_monitors_, true)) check_monitors();
  ++core_.counters.epoch;
  core_.counters.batch = 0;
  const int64_t every = options_.checkpoint.every_epochs;
  if (checkpoints_ && every > 0 && core_.counters.epoch % every == 0) save(/*is_end_of_run=*/false);
}

// What the epoch was like on all ranks, as far as it went.
void FitLoop::end_progress(bool is_whole, bool has_validated) {
  core_.clock.lap(StepPart::kOther);
  const StepTimes times = core_.clock.times() - epoch_began_.times;
  // Of the CPUs that the ranks of this host may use together, as if this one's part were everyone's.
  const double cpu_share = std::min(1.0, system_.cpu_share() * core_.place.num_ranks_here);
  const auto totals = core_.sums({epoch_loss_[0].item<double>(), epoch_loss_[1].item<double>(),
                                  times.share(StepPart::kData), times.share(StepPart::kCommunication), cpu_share});
  const auto mean_share = [&](size_t place) { return totals[place] / core_.place.world_size; };
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - epoch_began_.at;
  EpochSummary summary{.epoch = core_.counters.epoch,
                       .seconds = seconds.count(),
                       .num_samples = core_.counters.samples - epoch_began_.samples,
                       .data_wait_share = mean_share(2),
                       .communication_share = mean_share(3)};
  if (core_.place.device.is_cpu()) summary.cpu_share = mean_share(4);  // else CPUs only feed the device
  if (totals[1] > 0.0) {
    const double loss = totals[0] / totals[1];
    summary.metrics.emplace_back("loss", loss);
    if (is_whole) {
      const Metrics values{{"train/epoch_loss", loss}};
      core_.set_metrics(values);
      core_.log(values);
    }
  }
  for (const auto& [name, value] : core_.metrics) {
    if (has_validated && name.starts_with("validation/")) summary.metrics.emplace_back(name, value);
  }
  if (core_.logger && is_whole) core_.log(system_.sample());
  core_.progress.end_epoch(steps_of(core_.counters.batch), summary);
}

// What stops one rank stops all: the others would wait for it.
void FitLoop::agree_on_stop() {
  const auto& place = core_.place;
  auto& reason = core_.stop_reason;
  const int64_t first = place.world_size - core_.largest({reason.empty() ? 0 : place.world_size - place.rank}).front();
  if (reason.empty() && first < place.world_size) reason = fmt::format("stop on rank {}", first);
}

void FitLoop::check_interval() const {
  const auto& interval = options_.val_check_interval;
  if (!validation_ || interval.is_fraction() || !num_batches_) return;
  TORCH_CHECK_VALUE(interval.batches() <= *num_batches_, "[cohort] Trainer: val_check_interval = ", interval.batches(),
                    " batches, but an epoch has ", *num_batches_,
                    ", so there would never be a validation\n  hint: a smaller one, or a fraction of an epoch; "
                    "limit_val_batches = 0 makes none");
}

// Once callbacks have had the time of an epoch to log numbers of their own. Rank 0 has all of them.
void FitLoop::check_monitors() {
  std::vector<std::string> monitors;
  if (checkpoints_ && options_.checkpoint.keep_best > 0) monitors.push_back(options_.checkpoint.monitor);
  for (const auto& schedule : task_.schedulers) {
    if (schedule.takes_metric) monitors.push_back(schedule.options.monitor);
  }
  std::vector<std::string> names{"train/loss", "train/epoch_loss", "lr", "epoch"};  // perhaps not logged yet
  for (const auto& [name, value] : core_.metrics) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  for (const auto& monitor : monitors) {
    const bool is_there = std::find(names.begin(), names.end(), monitor) != names.end();
    if (core_.largest({core_.place.rank == 0 && !is_there ? 1 : 0}).front() == 0) continue;
    TORCH_CHECK_VALUE(false, "[cohort] Trainer: there is no number \"", monitor,
                      "\", by which the best checkpoint or the learning rate is chosen",
                      base::did_you_mean(monitor, names), "\n  hint: set monitor to one of \"",
                      fmt::format("{}", fmt::join(names, "\", \"")), "\", or give the task a metric of this name");
  }
}

// By rank 0's clock.
bool FitLoop::time_is_up() {
  if (options_.max_time.count() == 0) return false;
  const bool is_up = core_.place.rank == 0 && std::chrono::steady_clock::now() >= time_limit_;
  return core_.largest({is_up ? 1 : 0})[0] != 0;
}

bool FitLoop::is_over() {
  auto& reason = core_.stop_reason;
  if (!reason.empty()) return true;
  if (checkpoints_ && checkpoints_->stop_requested()) {
    reason = "signal";
  } else if (options_.max_steps > 0 && core_.counters.step >= options_.max_steps) {
    reason = "max_steps";
  } else if (options_.max_epochs > 0 && core_.counters.epoch >= options_.max_epochs) {
    reason = "max_epochs";
  } else if (time_is_up()) {
    reason = "max_time";
  }
  return !reason.empty();
}

FitResult FitLoop::result() const {
  FitResult result{.epochs = core_.counters.epoch,
                   .steps = core_.counters.step,
                   .reason = core_.stop_reason,
                   .metrics = core_.metrics,
                   .times = core_.clock.times()};
  const auto training = result.times.total() - result.times[StepPart::kOther];
  const double seconds = std::chrono::duration<double>(training).count();
  if (seconds > 0.0) {
    result.samples_per_second = static_cast<double>(core_.counters.samples - first_samples_) / seconds;
  }
  return result;
}

}  // namespace cohort::train::detail
