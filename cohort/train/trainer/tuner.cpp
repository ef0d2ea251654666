#include "cohort/train/trainer/tuner.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/checkpoint/state/rng_state.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"
#include "cohort/snapshot/free_memory.h"
#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train {
namespace detail {
namespace {

// Undoes everything that training changes while it lives.
class Rehearsal {
 public:
  explicit Rehearsal(TrainerCore& core) : core_(core) {
    for (const auto& generator : core.place().generators()) rng_.push_back(checkpoint::rng_state(generator));
    if (auto* const scaler = core.precision().scaler()) scaler_ = scaler->state_dict();
    for (const auto& each : tensors()) before_.push_back(each.detach().clone());
    std::swap(state_, optimizer_state());
    for (const auto& group : core.optimizer().param_groups()) rates_.push_back(group.options().get_lr());
  }
  ~Rehearsal() {
    const at::NoGradGuard no_grad;
    auto now = tensors();
    for (size_t i = 0; i < now.size(); ++i) now[i].detach().copy_(before_[i]);
    optimizer_state() = std::move(state_);
    for (size_t i = 0; i < rates_.size(); ++i) core_.optimizer().param_groups()[i].options().set_lr(rates_[i]);
    for (const auto& parameter : core_.strategy().parameters()) parameter.mutable_grad().reset();
    if (auto* const scaler = core_.precision().scaler()) scaler->load_state_dict(scaler_);
    for (size_t i = 0; i < rng_.size(); ++i) checkpoint::set_rng_state(rng_[i], core_.place().generators()[i]);
  }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

 private:
  std::vector<at::Tensor> tensors() const {
    auto all = core_.strategy().parameters();
    for (const auto& buffer : core_.strategy().net().buffers()) all.push_back(buffer);
    return all;
  }

  using OptimizerState = std::remove_reference_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;
  OptimizerState& optimizer_state() const {
    auto* const sharded = dynamic_cast<ZeroRedundancyOptimizer*>(core_.find_optimizer());
    return sharded ? sharded->optim().state() : core_.optimizer().state();
  }

  TrainerCore& core_;
  std::vector<at::Tensor> rng_;
  c10::IValue scaler_;
  std::vector<at::Tensor> before_;
  OptimizerState state_;
  std::vector<double> rates_;
};

// Returns the loss of this rank.
double rehearse_step(TrainerCore& core, ErasedTask& task, BatchFeed& feed) {
  const StepOutput output = run_forward(core, task, feed, /*is_training=*/true);
  core.precision().backward(output.loss);
  core.precision().step(core.optimizer());
  core.optimizer().zero_grad();
  return output.loss.item<double>();
}

void begin_rehearsal(TrainerCore& core, ErasedTask& task, const char* what) {
  core.attach(task);
  TORCH_CHECK_VALUE(core.find_optimizer(), "[cohort] Trainer: ", what, " needs an optimizer, and the task has none\n",
                    "  hint: give it one: Task{.model = net, .loss = cross_entropy, .optimizer = &optimizer}");
  TORCH_CHECK_VALUE(!task.pipeline, "[cohort] Trainer: ", what,
                    " does not support models in stages, whose steps also run backward\n",
                    "  hint: run a few fits with max_steps instead");
  core.strategy().net().train();
  core.strategy().set_requires_gradient_sync(true);
}

uint64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// Runs forward and backward alone, so that a rank that is short of memory leaves no other one waiting. Returns the error's text.
std::string short_of_memory(TrainerCore& core, ErasedTask& task, BatchFeed& feed) {
  std::string error;
  core.strategy().set_requires_gradient_sync(false);
  try {
    core.precision().backward(run_forward(core, task, feed, /*is_training=*/true).loss);
  } catch (const c10::OutOfMemoryError& thrown) {
    error = comm::text_of(thrown);
  }
  core.optimizer().zero_grad();
  core.strategy().set_requires_gradient_sync(true);
  return error;
}

// The time per sample, or the error's text if memory did not suffice.
struct SizeOutcome {
  double samples_per_second = 0.0;
  bool has_data = true;
  std::string error = {};
};

SizeOutcome try_size(TrainerCore& core, ErasedTask& task, BatchFeed& feed, int64_t size, int64_t steps) {
  auto options = feed.options();
  options.batch_size = size;
  options.global_batch_size.reset();
  options.drop_last = true;
  feed.set_options(std::move(options));
  SizeOutcome outcome;
  feed.start();
  // If the strategy's forward pass is collective, rethrows the error; the other ranks are told.
  const bool is_alone = core.place().world_size == 1;
  if (!is_alone && !core.strategy().evaluates_together()) {
    outcome.has_data = core.largest({feed.next() ? 0 : 1})[0] == 0;
    if (outcome.has_data) outcome.error = short_of_memory(core, task, feed);
    if (!outcome.has_data || core.largest({outcome.error.empty() ? 0 : 1})[0] != 0) {
      feed.stop();
      return outcome;
    }
    feed.start();
  }
  try {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t step = 0; step < steps; ++step) {
      outcome.has_data = core.largest({feed.next() ? 0 : 1})[0] == 0;
      if (!outcome.has_data) break;
      rehearse_step(core, task, feed);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    outcome.samples_per_second = static_cast<double>(size * steps) / seconds.count();
  } catch (const c10::OutOfMemoryError& error) {
    if (!is_alone) throw;
    outcome.error = comm::text_of(error);
  }
  feed.stop();
  return outcome;
}

}  // namespace

BatchSizeResult find_batch_size(TrainerCore& core, ErasedTask& task, BatchFeed& feed, const BatchSizeOptions& options) {
  TORCH_CHECK_VALUE(options.first > 0 && options.steps > 0, "[cohort] Trainer: find_batch_size begins with a positive ",
                    "size and makes at least a step, but got ", options.first, " and ", options.steps);
  TORCH_CHECK_VALUE(!feed.options().batch_sampler,
                    "[cohort] Trainer: the loader has a batch sampler, which decides on the size of batches itself");
  begin_rehearsal(core, task, "find_batch_size");
  const Rehearsal rehearsal(core);
  shard_samples(feed, core.feed_settings(), SampleSharding::kEqually);
  BatchSizeResult result;
  const uint64_t at_first = peak_bytes();
  for (int64_t size = options.first;; size *= 2) {
    if (size > options.max) {
      result.reason = "max";
      break;
    }
    const auto checked = snapshot::check_free_memory(2 * (peak_bytes() - at_first));
    const bool is_short = core.largest({checked.ok() ? 0 : 1})[0] != 0;
    if (is_short) {
      result.reason = checked.ok() ? "memory of another rank" : checked.error().describe();
      break;
    }
    const SizeOutcome outcome = try_size(core, task, feed, size, options.steps);
    const bool has_failed = core.largest({outcome.error.empty() ? 0 : 1})[0] != 0;
    if (has_failed || !outcome.has_data) {
      result.reason = !outcome.has_data       ? "no more data"
                      : outcome.error.empty() ? "memory of another rank"
                                              : outcome.error;
      break;
    }
    result.largest = size;
    result.trials.push_back({size, core.sums({outcome.samples_per_second}).front() / core.place().world_size});
  }
  const auto fastest = std::max_element(result.trials.begin(), result.trials.end(), [](const auto& a, const auto& b) {
    return a.samples_per_second < b.samples_per_second;
  });
  if (fastest != result.trials.end()) result.fastest = fastest->batch_size;
  return result;
}

LearningRateResult find_learning_rate(TrainerCore& core, ErasedTask& task, BatchFeed& feed,
                                      const LearningRateOptions& options) {
  TORCH_CHECK_VALUE(options.first > 0.0 && options.last > options.first && options.steps > 1,
                    "[cohort] Trainer: find_learning_rate needs 0 < first < last and at least 2 steps, but got ",
                    options.first, ", ", options.last, " and ", options.steps);
  begin_rehearsal(core, task, "find_learning_rate");
  const Rehearsal rehearsal(core);
  shard_samples(feed, core.feed_settings(), SampleSharding::kEqually);
  constexpr double kSmoothing = 0.98;
  LearningRateResult result;
  double average = 0.0;
  double best = 0.0;
  int64_t epoch = 0;
  feed.start();
  for (int64_t step = 0; step < options.steps; ++step) {
    const double part = static_cast<double>(step) / static_cast<double>(options.steps);
    const double rate = options.is_linear ? options.first + (options.last - options.first) * part
                                          : options.first * std::pow(options.last / options.first, part);
    for (auto& group : core.optimizer().param_groups()) group.options().set_lr(rate);
    if (core.largest({feed.next() ? 0 : 1})[0] != 0) {
      feed.set_epoch(++epoch);
      feed.start();
      TORCH_CHECK_VALUE(feed.next(), "[cohort] Trainer: find_learning_rate has no batch to train on");
    }
    const double loss = core.sums({rehearse_step(core, task, feed)}).front() / core.place().world_size;
    average = kSmoothing * average + (1.0 - kSmoothing) * loss;
    const double smoothed = average / (1.0 - std::pow(kSmoothing, static_cast<double>(step + 1)));
    const bool diverges = step > 0 && options.early_stop_threshold && smoothed > *options.early_stop_threshold * best;
    if (step == 0 || smoothed < best) best = smoothed;
    result.rates.push_back(rate);
    result.losses.push_back(smoothed);
    if (diverges || !std::isfinite(smoothed)) break;
  }
  feed.stop();
  result.suggestion = steepest_rate(result.rates, result.losses);
  return result;
}

}  // namespace detail

std::optional<double> steepest_rate(const std::vector<double>& rates, const std::vector<double>& losses,
                                    size_t skip_begin, size_t skip_end) {
  if (losses.size() <= skip_begin + skip_end) return std::nullopt;
  std::vector<std::pair<double, double>> points;
  for (size_t i = skip_begin; i < losses.size() - skip_end; ++i) {
    if (std::isfinite(losses[i])) points.emplace_back(rates[i], losses[i]);
  }
  if (points.size() < 2) return std::nullopt;
  // As numpy.gradient: the difference of both neighbors, and at the ends of the point and its one neighbor.
  size_t best = 0;
  double steepest = 0.0;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t before = i == 0 ? 0 : i - 1;
    const size_t after = std::min(i + 1, points.size() - 1);
    const double slope = (points[after].second - points[before].second) / static_cast<double>(after - before);
    if (i == 0 || slope < steepest) {
      steepest = slope;
      best = i;
    }
  }
  return points[best].first;
}

}  // namespace cohort::train
