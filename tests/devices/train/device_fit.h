/// One run of a Trainer on a device or on the CPU, and what came of it.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cohort/train/metrics/accuracy.h"
#include "cohort/train/metrics/metric.h"
#include "tests/devices/ddp/device_training.h"
#include "tests/support/sim_device/queue.h"
#include "tests/train/trainer/small_task.h"

namespace cohort::sim {

using train::test::Loader;
using train::test::quiet;
using train::test::small_data;
using train::test::SmallTask;

/// Leaves losses where they are: who reads them waits for the device.
struct KeepLosses : train::Callback {
  void on_train_batch_end(train::Trainer&, const train::StepReport& report) override { losses.push_back(report.loss); }
  std::vector<at::Tensor> losses;
};

/// How often the host waits for a device between the start of batch `first` of each epoch and the end of its last one.
struct CountWaits : train::Callback {
  explicit CountWaits(int64_t first_batch = 0) : first(first_batch) {}
  void on_train_batch_start(train::Trainer&, int64_t batch) override {
    if (batch == first) seen = num_host_waits();
  }
  void on_train_batch_end(train::Trainer&, const train::StepReport& report) override {
    if (report.batch < first) return;
    ++num_batches;
    num_waits += num_host_waits() - std::exchange(seen, num_host_waits());
  }
  int64_t first;
  uint64_t seen = 0, num_waits = 0;
  int num_batches = 0;
};

struct Outcome {
  std::vector<double> losses;
  Weights weights;
  train::Metrics metrics;
};

inline std::vector<double> numbers_of(const std::vector<at::Tensor>& losses) {
  std::vector<double> numbers;
  for (const auto& loss : losses) numbers.push_back(loss.item<double>());
  return numbers;
}

/// By default an epoch ends with a smaller batch, which two replicas can share. Evaluates each epoch, too.
struct Batches {
  int64_t num_samples = 54;
  int64_t size = 5;
};
inline Outcome fit_on(SmallTask& task, train::TrainerOptions options, const Batches& batches = {}) {
  task.metrics = {{"accuracy", train::Accuracy()}, {"own", train::test::Accuracy()}};
  const auto kept = std::make_shared<KeepLosses>();
  options.callbacks.push_back(kept);
  train::Trainer trainer(quiet(options));
  const auto result = trainer.fit(
      task, Loader(small_data(batches.num_samples), {.batch_size = batches.size, .shuffle = true, .num_workers = 1}),
      Loader(small_data(13, /*seed=*/8), {.batch_size = 4}));
  trainer.strategy().synchronize_buffers();
  Weights weights;
  for (const auto& tensor : trainer.strategy().parameters()) weights.push_back(tensor.detach().cpu());
  for (const auto& buffer : trainer.strategy().net().buffers()) weights.push_back(buffer.cpu());
  return {numbers_of(kept->losses), weights, result.metrics};
}

/// Bit for bit; real devices round in their own way. `tolerance`: theirs.
inline bool is_equal(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  return is_real() ? at::allclose(got, wanted, tolerance, tolerance) : got.equal(wanted);
}
inline bool is_equal(double got, double wanted, double tolerance) {
  return got == wanted || (is_real() && std::abs(got - wanted) < tolerance);
}

/// Empty: they are equal.
inline std::string difference(const Outcome& got, const Outcome& wanted, double tolerance = 1e-4) {
  if (got.losses.size() != wanted.losses.size()) return "numbers of losses";
  for (size_t i = 0; i < got.losses.size(); ++i) {
    if (!is_equal(got.losses[i], wanted.losses[i], tolerance))
      return c10::str("loss ", i, ": ", got.losses[i], ", ", wanted.losses[i]);
  }
  if (got.weights.size() != wanted.weights.size()) return "numbers of tensors";
  for (size_t i = 0; i < got.weights.size(); ++i) {
    if (!is_equal(got.weights[i], wanted.weights[i], tolerance)) return c10::str("tensor ", i);
  }
  if (got.metrics.size() != wanted.metrics.size()) return "numbers of metrics";
  for (size_t i = 0; i < got.metrics.size(); ++i) {
    const auto& [name, value] = wanted.metrics[i];
    if (got.metrics[i].first != name) return name;
    if (!is_equal(got.metrics[i].second, value, tolerance))
      return c10::str(name, ": ", got.metrics[i].second, ", ", value);
  }
  return "";
}

}  // namespace cohort::sim
