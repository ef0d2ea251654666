#include "cohort/train/metrics/metric.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "cohort/base/numbers/count.h"
#include "cohort/comm/group/device.h"
#include "cohort/train/metrics/numbers_over_ranks.h"

namespace cohort::train {
namespace {

const auto kSum = at::TensorOptions().dtype(at::kDouble);

std::vector<double> numbers_in(const at::Tensor& tensor) {
  const auto* const first = tensor.const_data_ptr<double>();
  return {first, first + tensor.numel()};
}

}  // namespace

Metric::Metric(int64_t num_sums) : sums_(at::zeros({num_sums}, kSum)) {
  TORCH_CHECK_VALUE(num_sums > 0, "[cohort] a Metric has at least one sum, but this one has ", num_sums);
}

Metric::~Metric() = default;

void Metric::reset() { sums_ = at::zeros_like(sums_); }

void Metric::add(const std::vector<at::Tensor>& numbers) {
  const c10::AutoGradMode no_grad(false);
  TORCH_CHECK_VALUE(static_cast<int64_t>(numbers.size()) == sums_.numel(), "[cohort] Metric::add: ", numbers.size(),
                    " numbers for ", sums_.numel(), " sums");
  const auto device = numbers.front().device();
  const bool non_blocking = !device.is_cpu();
  std::vector<at::Tensor> doubles;
  for (const auto& number : numbers) {
    TORCH_CHECK_VALUE(number.numel() == 1,
                      "[cohort] Metric::add: a number is a tensor of one element, but this one has ", number.numel());
    doubles.push_back(number.detach().to(device, at::kDouble, non_blocking).reshape({}));
  }
  if (sums_.device() != device) sums_ = sums_.to(device, non_blocking);
  sums_ += at::stack(doubles);
}

MetricValues compute(const std::vector<NamedMetric>& metrics, const ComputeOptions& options) {
  if (metrics.empty()) return {};
  std::vector<at::Tensor> sums;
  for (const auto& [name, metric] : metrics) sums.push_back(metric->sums().cpu());
  at::Tensor all = at::cat(sums);
  if (!options.is_local && (options.process_group || is_initialized())) {
    all = numbers_over_ranks(all, options.process_group, current_device());
  }
  const std::vector<double> numbers = numbers_in(all);
  MetricValues values;
  auto from = numbers.begin();
  for (size_t i = 0; i < metrics.size(); ++i) {
    const auto to = from + sums[i].numel();
    values.emplace_back(metrics[i].first, metrics[i].second->value({from, to}));
    from = to;
  }
  return values;
}

void Mean::update(const at::Tensor& mean, int64_t count) {
  const auto weight = at::full({}, static_cast<double>(count), kSum);
  add({mean.detach().to(at::kDouble) * static_cast<double>(count), weight});
}

void Mean::update(double mean, int64_t count) {
  const auto weight = static_cast<double>(count);
  add({at::full({}, mean * weight, kSum), at::full({}, weight, kSum)});
}

double Mean::value(const std::vector<double>& sums) const { return sums[0] / sums[1]; }

void MeanOf::update(const at::Tensor& output, const at::Tensor& target) {
  TORCH_CHECK_VALUE(
      output.dim() > 0,
      "[cohort] MeanOf: the first dimension of an output counts samples, but this output has no dimensions");
  const c10::AutoGradMode no_grad(false);
  Mean::update(function_(output, target).to(at::kDouble).mean(), output.size(0));
}

void Perplexity::update(const at::Tensor& logits, const at::Tensor& target) {
  TORCH_CHECK_VALUE(logits.dim() == target.dim() + 1 && logits.sizes().slice(0, target.dim()) == target.sizes(),
                    "[cohort] Perplexity: logits are [..., classes] and targets [...], but got ", logits.sizes(),
                    " and ", target.sizes());
  const c10::AutoGradMode no_grad(false);
  const at::Tensor classes = target.flatten();
  const at::Tensor loss =
      at::cross_entropy_loss(logits.reshape({classes.numel(), logits.size(-1)}).to(at::kFloat), classes,
                             /*weight=*/{}, at::Reduction::Sum, options_.ignore_index);
  add({loss.to(at::kDouble), classes.ne(options_.ignore_index).sum()});
}

double Perplexity::value(const std::vector<double>& sums) const { return std::exp(Mean::value(sums)); }

RealSamples::RealSamples(int64_t dataset_size, const RealSamplesOptions& options) {
  const bool has_group = is_initialized();
  const int64_t replicas = options.num_replicas.value_or(has_group ? get_world_size() : 1);
  const int64_t rank = options.rank.value_or(has_group ? get_rank() : 0);
  TORCH_CHECK_VALUE(dataset_size >= 0 && replicas > 0 && rank >= 0 && rank < replicas,
                    "[cohort] RealSamples: needs a dataset size >= 0 and 0 <= rank < num_replicas, but got ",
                    dataset_size, ", ", rank, " and ", replicas);
  left_ = rank < dataset_size ? base::divide_up(dataset_size - rank, replicas) : 0;
}

int64_t RealSamples::take(int64_t batch_size) {
  const int64_t real = std::min(batch_size, left_);
  left_ -= real;
  return real;
}

}  // namespace cohort::train
