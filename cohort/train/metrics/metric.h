/// Metrics: numbers about a model's predictions over all batches of all ranks. A metric keeps its sums on the device as float64,
/// and compute() reduces the sums of all metrics with one all_reduce.
///
///     cohort::train::Mean loss;
///     cohort::train::Accuracy top1, top5({.top_k = 5});
///     for (auto& [input, target] : loader) {
///       const auto logits = net->forward(input);
///       loss.update(cross_entropy(logits, target), target.size(0));
///       top1.update(logits, target);
///       top5.update(logits, target);
///     }
///     cohort::train::compute({{"loss", &loss}, {"top-1", &top1}, {"top-5", &top5}});   // the same on all ranks
///
/// Batches are weighted by their number of samples, and ranks may have different numbers of batches, or none. A
/// DistributedSampler that pads repeats samples: RealSamples tells how many samples of a batch are not repetitions.
///
/// A metric of your own:
///
///     struct Recall : cohort::train::Metric {
///       Recall() : Metric(2) {}
///       void update(const at::Tensor& found, const at::Tensor& wanted) { add({(found & wanted).sum(), wanted.sum()}); }
///       double value(const std::vector<double>& sums) const override { return sums[0] / sums[1]; }
///     };
///
/// Thread-safety: none.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::train {

class COHORT_API Metric {
 public:
  /// Makes a metric of this many sums.
  explicit Metric(int64_t num_sums);
  virtual ~Metric();

  /// Returns the metric from the sums over all batches of all ranks.
  virtual double value(const std::vector<double>& sums) const = 0;
  /// Sets all sums to 0.
  void reset();
  /// The sums of this rank so far: float64, one-dimensional, on the device of the last batch.
  const at::Tensor& sums() const { return sums_; }

 protected:
  Metric(const Metric&) = default;
  Metric& operator=(const Metric&) = default;

  /// Adds one number of a batch to each sum, without waiting for a device: tensors of one element, or doubles.
  void add(const std::vector<at::Tensor>& numbers);

 private:
  at::Tensor sums_;
};

using NamedMetric = std::pair<std::string, Metric*>;
/// Values in the order of the metrics.
using MetricValues = std::vector<std::pair<std::string, double>>;

struct ComputeOptions {
  /// If null, uses the default group, or this process alone without a group.
  Group process_group = {};
  /// Computes the values of this rank alone, without communication.
  bool is_local = false;
};

/// Reduces and computes all metrics. Collective: all ranks pass metrics of the same kinds in the same order. The sums stay: call
/// reset() for the next epoch.
COHORT_API MetricValues compute(const std::vector<NamedMetric>& metrics, const ComputeOptions& options = {});

/// The weighted mean of the values, NaN without any.
class COHORT_API Mean : public Metric {
 public:
  Mean() : Metric(2) {}
  /// Adds the mean of `count` samples, such as a loss: a tensor of one element.
  void update(const at::Tensor& mean, int64_t count = 1);
  void update(double mean, int64_t count = 1);
  double value(const std::vector<double>& sums) const override;
};

/// The mean over all samples of a function of each batch's predictions; for the metrics of a Trainer's task:
///
///     const auto distance = [](const at::Tensor& output, const at::Tensor& target) { return (output - target).abs(); };
///     std::vector<TaskMetric> metrics = {{"error", MeanOf(distance)}};
class COHORT_API MeanOf final : public Mean {
 public:
  using Function = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;
  /// `function` returns a tensor of any shape, whose mean counts for each of the batch's samples.
  explicit MeanOf(Function function) : function_(std::move(function)) {}
  /// Throws c10::ValueError if the output has no dimensions; the first one is that of samples.
  void update(const at::Tensor& output, const at::Tensor& target);

 private:
  Function function_;
};

struct PerplexityOptions {
  /// Ignores targets of this class.
  int64_t ignore_index = -100;
};

/// exp of the mean negative log likelihood: call update(cross_entropy, number of tokens), or update(logits, target).
class COHORT_API Perplexity final : public Mean {
 public:
  explicit Perplexity(const PerplexityOptions& options = {}) : options_(options) {}
  using Mean::update;
  /// `logits` [..., classes] of floating point, `target` [...] int64. Throws c10::ValueError for other shapes.
  void update(const at::Tensor& logits, const at::Tensor& target);
  double value(const std::vector<double>& sums) const override;

 private:
  PerplexityOptions options_;
};

struct RealSamplesOptions {
  /// Default: the values of the default group, or of this process alone without a group.
  std::optional<int64_t> num_replicas = {};
  std::optional<int64_t> rank = {};
};

/// Counts a rank's samples of one epoch in the order of DistributedSampler, which repeats samples so that all ranks have equally
/// many:
///
///     cohort::train::RealSamples real(dataset.size());
///     for (auto& [input, target] : loader) top1.update(net->forward(input), target, real.take(target.size(0)));
class COHORT_API RealSamples {
 public:
  explicit RealSamples(int64_t dataset_size, const RealSamplesOptions& options = {});

  /// Returns how many of the next `batch_size` samples are not repetitions; repetitions come last.
  int64_t take(int64_t batch_size);

 private:
  int64_t left_;
};

}  // namespace cohort::train
