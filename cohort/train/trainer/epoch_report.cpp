#include "cohort/train/trainer/epoch_report.h"

#include <torch/optim/optimizer.h>

#include <algorithm>

namespace cohort::train::detail {

EpochReport::EpochReport(TrainerCore& core) : core_(core), system_({.gpu = core.is_logged()}) {}

void EpochReport::begin(std::optional<int64_t> num_batches) {
  const auto& position = core_.position();
  const auto max_steps = core_.options().max_steps;
  const int64_t first = position.steps_of(position.batch());
  std::optional<int64_t> num_steps;
  if (num_batches) num_steps = position.steps_of(*num_batches);
  if (num_steps && max_steps) num_steps = std::min(*num_steps, first + *max_steps - position.step());
  began_at_ = std::chrono::steady_clock::now();
  samples_before_ = position.samples();
  times_before_ = core_.clock().times();
  core_.progress().begin_epoch(position.epoch(), num_steps, first);
}

void EpochReport::after_step(const LossMeter& losses) {
  const auto& position = core_.position();
  const bool is_due = position.step() % core_.options().log_every_n_steps == 0;
  if (!is_due && !core_.place().device.is_cpu()) return;
  if (!is_due && !core_.progress().is_enabled()) return;
  double mean = losses.mean_of_step();
  const double rate = core_.optimizer().param_groups().front().options().get_lr();
  if (is_due) {
    mean = core_.sums({mean}).front() / core_.place().world_size;
    core_.record({{"train/loss", mean}, {"lr", rate}, {"epoch", static_cast<double>(position.epoch())}});
  }
  core_.progress().update(position.steps_of(position.batch()), position.samples() - samples_before_,
                          {{"loss", mean}, {"lr", rate}}, core_.clock().times() - times_before_);
}

void EpochReport::end(const LossMeter& losses, bool is_whole, bool has_validated) {
  const auto& position = core_.position();
  const auto& place = core_.place();
  core_.clock().lap(StepPart::kOther);
  const StepTimes times = core_.clock().times() - times_before_;
  // The share of the CPUs that the ranks of this host may use together, computed as if all of them used as much as this rank.
  const double cpu_share = std::min(1.0, system_.cpu_share() * place.num_ranks_here);
  const auto& loss_sums = losses.of_epoch();
  const auto totals = core_.sums({loss_sums[0].item<double>(), loss_sums[1].item<double>(),
                                  times.share(StepPart::kData), times.share(StepPart::kCommunication), cpu_share});
  const auto mean_share = [&](size_t number) { return totals[number] / place.world_size; };
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_at_;
  EpochSummary summary{.epoch = position.epoch(),
                       .seconds = seconds.count(),
                       .num_samples = position.samples() - samples_before_,
                       .data_wait_share = mean_share(2),
                       .communication_share = mean_share(3)};
  if (place.device.is_cpu()) summary.cpu_share = mean_share(4);  // with accelerators, CPUs only feed the device
  if (totals[1] > 0.0) {
    const double loss = totals[0] / totals[1];
    summary.metrics.emplace_back("loss", loss);
    if (is_whole) core_.record({{"train/epoch_loss", loss}});
  }
  for (const auto& [name, value] : core_.metrics().all()) {
    if (has_validated && name.starts_with("validation/")) summary.metrics.emplace_back(name, value);
  }
  if (core_.metrics().has_logger() && is_whole) core_.log(system_.sample());
  core_.progress().end_epoch(position.steps_of(position.batch()), summary);
}

}  // namespace cohort::train::detail
