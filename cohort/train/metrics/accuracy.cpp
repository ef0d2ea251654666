#include "cohort/train/metrics/accuracy.h"

#include <ATen/ops/full.h>
#include <ATen/ops/topk.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace cohort::train {

Accuracy::Accuracy(const AccuracyOptions& options) : Metric(2), options_(options) {
  TORCH_CHECK_VALUE(options.top_k > 0, "[cohort] Accuracy: top_k must be at least 1, not ", options.top_k);
}

at::Tensor Accuracy::is_right(const at::Tensor& output, const at::Tensor& target) const {
  if (options_.threshold) return (output > *options_.threshold) == (target != 0);
  if (options_.top_k == 1) return output.argmax(1) == target;
  const int64_t count = std::min(options_.top_k, output.size(1));
  const auto best = std::get<1>(at::topk(output, count, 1, /*largest=*/true, /*sorted=*/false));
  return (best == target.unsqueeze(1)).any(1);
}

void Accuracy::update(const at::Tensor& output, const at::Tensor& target, std::optional<int64_t> num_real) {
  const c10::AutoGradMode no_grad(false);
  auto shape = output.sizes().vec();
  if (!options_.threshold && shape.size() > 1) shape.erase(shape.begin() + 1);
  TORCH_CHECK_VALUE(output.dim() > (options_.threshold ? 0 : 1) && target.sizes() == shape,
                    "[cohort] Accuracy: outputs of sizes ", output.sizes(), " do not fit targets of sizes ",
                    target.sizes(),
                    "\n  hint: give outputs [samples, classes, ...] and targets [samples, ...], or with a ",
                    "threshold both are [samples, ...]");
  const int64_t count = std::clamp<int64_t>(num_real.value_or(target.size(0)), 0, target.size(0));
  const auto wanted = target.narrow(0, 0, count);
  auto right = is_right(output.narrow(0, 0, count), wanted);
  auto num_answers = at::full({}, static_cast<double>(right.numel()), right.options().dtype(at::kDouble));
  if (options_.ignore_index) {
    const auto counts = wanted != *options_.ignore_index;
    right = right.logical_and(counts);
    num_answers = counts.sum();
  }
  add({right.sum(), num_answers});
}

double Accuracy::value(const std::vector<double>& sums) const { return sums[0] / sums[1]; }

}  // namespace cohort::train
