#include "cohort/train/trainer/trainer.h"

#include <c10/util/Exception.h>

#include "cohort/train/logging/torch_warnings.h"
#include "cohort/train/trainer/callback.h"
#include "cohort/train/trainer/fit_loop.h"

namespace cohort::train {

Trainer::Trainer(TrainerOptions options) : core_(std::make_unique<detail::TrainerCore>(*this, std::move(options))) {}

Trainer::~Trainer() = default;

FitResult Trainer::run_fit(detail::ErasedTask& task, BatchFeed& train, BatchFeed* validation) {
  const detail::TorchWarnings warnings;  // on every rank, as they share rank 0's terminal
  return detail::FitLoop(*core_, task, train, validation).run();
}

Metrics Trainer::run_evaluation(detail::ErasedTask& task, BatchFeed& feed, const char* phase) {
  const detail::TorchWarnings warnings;
  core_->attach(task);
  shard_samples(feed, core_->feed_settings(), SampleSharding::kOnce);
  const Metrics values = detail::evaluate(*core_, task, feed, phase);
  core_->record(values);
  core_->each_callback([&](Callback& callback) {
    if (std::string_view(phase) == "test") {
      callback.on_test_end(*this, values);
    } else {
      callback.on_validation_end(*this, values);
    }
  });
  return values;
}

std::vector<at::Tensor> Trainer::run_prediction(detail::ErasedTask& task, BatchFeed& feed) {
  core_->attach(task);
  shard_samples(feed, core_->feed_settings(), SampleSharding::kOnce);
  return detail::predict(*core_, task, feed);
}

BatchSizeResult Trainer::run_find_batch_size(detail::ErasedTask& task, BatchFeed& feed,
                                             const BatchSizeOptions& options) {
  return detail::find_batch_size(*core_, task, feed, options);
}

LearningRateResult Trainer::run_find_learning_rate(detail::ErasedTask& task, BatchFeed& feed,
                                                   const LearningRateOptions& options) {
  return detail::find_learning_rate(*core_, task, feed, options);
}

const TrainerOptions& Trainer::options() const { return core_->options(); }
const std::optional<DeviceMesh>& Trainer::mesh() const { return core_->mesh(); }

int Trainer::rank() const { return core_->place().rank; }
int Trainer::world_size() const { return core_->place().world_size; }
c10::Device Trainer::device() const { return core_->place().device; }
int64_t Trainer::epoch() const { return core_->position().epoch(); }
int64_t Trainer::step() const { return core_->position().step(); }
int64_t Trainer::batch() const { return core_->position().batch(); }
int64_t Trainer::gradient_accumulation_steps() const { return core_->position().accumulation(); }
const Metrics& Trainer::metrics() const { return core_->metrics().all(); }
std::optional<double> Trainer::metric(std::string_view name) const { return core_->metrics().find(name); }
const StepTimes& Trainer::times() const { return core_->clock().times(); }
void Trainer::stop(const std::string& reason) { core_->position().stop(reason.empty() ? "stop" : reason); }
void Trainer::print(std::string_view text) { core_->progress().print_anyway(text); }

void Trainer::log(const Metrics& values) { core_->record(values); }

Strategy& Trainer::strategy() {
  TORCH_CHECK_VALUE(core_->find_strategy(), "[cohort] Trainer: there is no strategy before a task was used");
  return core_->strategy();
}

torch::optim::Optimizer& Trainer::optimizer() {
  TORCH_CHECK_VALUE(core_->find_optimizer(),
                    "[cohort] Trainer: there is no optimizer before a task that has one was used");
  return core_->optimizer();
}

}  // namespace cohort::train
