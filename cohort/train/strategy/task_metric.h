/// TaskMetric: a metric of a task with a name: one of train/metrics, or any object with these members:
///
///     struct Error {
///       void update(const at::Tensor& output, const at::Tensor& target);   // called for each batch, on the rank that has it
///       void reset();
///       at::Tensor sums();                                // its running sums, one-dimensional
///       double value(const std::vector<double>& sums);    // the metric, from the sums over all ranks
///     };
///
/// or, instead of the last two, `double compute()`, which all ranks call together, so it may be collective.
///
///     std::vector<cohort::train::TaskMetric> metrics = {{"accuracy", cohort::train::Accuracy()}};
///
/// Thread-safety: as the metric.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::train {

struct TaskMetric {
  /// Keeps a copy of `metric`, or the std::shared_ptr itself.
  template <class Metric>
  TaskMetric(std::string metric_name, Metric metric) : name(std::move(metric_name)) {
    const auto kept = shared(std::move(metric));
    update = [kept](const at::Tensor& output, const at::Tensor& target) { kept->update(output, target); };
    if constexpr (requires {
                    kept->value(std::vector<double>());
                    kept->sums();
                  }) {
      sums = [kept] { return at::Tensor(kept->sums()); };
      value = [kept](const std::vector<double>& of_all) -> double { return kept->value(of_all); };
    } else {
      compute = [kept]() -> double { return kept->compute(); };
    }
    reset = [kept] { kept->reset(); };
  }

  std::string name;
  std::function<void(const at::Tensor& output, const at::Tensor& target)> update;
  std::function<void()> reset;
  /// A metric has these two, or `compute`.
  std::function<at::Tensor()> sums = {};
  std::function<double(const std::vector<double>& sums)> value = {};
  std::function<double()> compute = {};

 private:
  template <class Metric>
  static auto shared(Metric metric) {
    if constexpr (requires { metric->reset(); }) {
      return metric;
    } else {
      return std::make_shared<Metric>(std::move(metric));
    }
  }
};

}  // namespace cohort::train
