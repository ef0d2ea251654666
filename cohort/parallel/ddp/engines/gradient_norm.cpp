#include "cohort/parallel/ddp/engines/gradient_norm.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/optim/purpose.h"

namespace cohort::ddp {
namespace {

// Returns all elements in the order of memory.
at::Tensor flat(const at::Tensor& gradient) {
  if (!gradient.is_non_overlapping_and_dense()) return gradient.reshape({-1});
  return gradient.as_strided({gradient.numel()}, {1});
}

}  // namespace

GradientNorm::GradientNorm(Group group, std::vector<at::Tensor> parameters, double norm_type)
    : group_(std::move(group)), parameters_(std::move(parameters)), norm_type_(norm_type) {
  TORCH_CHECK_VALUE(norm_type > 0, "[cohort] track_gradient_norm: norm_type must be positive, got ", norm_type);
}

// Each rank takes an even share of a bucket's elements, in the order of the ranks.
void GradientNorm::on_bucket(const std::vector<size_t>& indices) {
  const at::NoGradGuard no_grad;
  int64_t count = 0;
  for (const size_t index : indices) {
    if (parameters_[index].grad().defined()) count += parameters_[index].numel();
  }
  const int64_t num_shares = looks_at_all_ ? 1 : group_->getSize();
  const int64_t share = looks_at_all_ ? 0 : group_->getRank();
  const int64_t begin = count * share / num_shares;
  const int64_t end = count * (share + 1) / num_shares;
  int64_t offset = 0;
  for (const size_t index : indices) {
    const auto& gradient = parameters_[index].grad();
    if (!gradient.defined()) continue;
    const int64_t first = std::max(begin - offset, int64_t{0});
    const int64_t last = std::min(end - offset, gradient.numel());
    offset += gradient.numel();
    if (first >= last) continue;
    norms_.push_back(at::linalg_vector_norm(flat(gradient).slice(0, first, last), norm_type_)
                         .to(parameters_.front().device(), at::kDouble));
  }
}

void GradientNorm::use_group(const Group& group) {
  group_ = group;
  norms_.clear();
  value_.reset();
}

// Returns the norm over all ranks' shares. A maximum may ignore NaN, so NaNs are counted separately.
at::Tensor GradientNorm::total(const at::Tensor& norm) const {
  const comm::CalledFor purpose(optim::kClipGradNorm);
  if (!std::isinf(norm_type_)) {
    const auto sum = norm.pow(norm_type_);
    all_reduce(sum, {.group = group_});
    return sum.pow(1 / norm_type_);
  }
  const auto is_nan = norm.isnan();
  const auto both = at::stack({norm.masked_fill(is_nan, 0), is_nan.to(norm.dtype())});
  all_reduce(both, {.op = ReduceOp::MAX, .group = group_});
  return both[0].masked_fill(both[1] > 0, std::numeric_limits<double>::quiet_NaN());
}

void GradientNorm::on_end() {
  const at::NoGradGuard no_grad;
  const auto options = parameters_.front().options().dtype(at::kDouble).requires_grad(false);
  const auto own = std::exchange(norms_, {});
  auto norm = own.empty() ? at::zeros({}, options) : at::linalg_vector_norm(at::stack(own), norm_type_);
  if (group_->getSize() > 1 && !looks_at_all_) norm = total(norm);
  value_ = norm.to(c10::toRealValueType(parameters_.front().scalar_type()));
}

const at::Tensor& GradientNorm::value() const {
  TORCH_CHECK(value_.defined(),
              "[cohort] gradient_norm: no backward pass has averaged gradients since track_gradient_norm was called");
  return value_;
}

}  // namespace cohort::ddp
