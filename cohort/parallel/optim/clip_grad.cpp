#include "cohort/parallel/optim/clip_grad.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/ForeachUtils.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::nn::utils {
namespace {

using TensorVector = std::vector<at::Tensor>;

TensorVector gradients_of(const Tensors& parameters) {
  TensorVector grads;
  for (const auto& parameter : parameters.list()) {
    if (parameter.grad().defined()) grads.push_back(parameter.grad());
  }
  return grads;
}

// PyTorch's own grouping, whose order decides in which order norms are added up.
std::vector<TensorVector> by_device_and_dtype(const TensorVector& tensors) {
  if (tensors.empty()) return {};
  const std::vector<std::optional<at::Tensor>> optionals(tensors.begin(), tensors.end());
  std::vector<TensorVector> groups;
  for (const auto& [key, lists] :
       at::native::_group_tensors_by_first_tensors_device_and_dtype({optionals}, /*with_indices=*/false)) {
    auto& group = groups.emplace_back();
    for (const auto& tensor : lists.first[0]) group.push_back(*tensor);
  }
  return groups;
}

// The list of torch/utils/_foreach_utils.py.
bool has_foreach(c10::DeviceType type) {
  return type == at::kCPU || type == at::kCUDA || type == at::kXPU || type == at::kMTIA || type == at::kPrivateUse1;
}

bool uses_foreach(const TensorVector& group, std::optional<bool> foreach) {
  const auto type = group.front().device().type();
  TORCH_CHECK(!foreach.value_or(false) || has_foreach(type),
              "foreach=true was passed, but can't use the foreach API on ",
              c10::DeviceTypeName(type, /*lower_case=*/true), " tensors");
  return foreach.value_or(true) && has_foreach(type);
}

// As Python writes a float.
std::string number(double value) {
  auto text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

void check_finite(const at::Tensor& total_norm, double norm_type) {
  TORCH_CHECK(
      at::isfinite(total_norm).item<bool>(), "The total norm of order ", number(norm_type),
      " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and scale "
      "the gradients by the non-finite norm anyway, set `error_if_nonfinite=false`");
}

// Of several parts of one vector, and back.
double to_summand(double norm, double norm_type) { return norm_type == 0 ? norm : std::pow(norm, norm_type); }
double from_sum(double sum, double norm_type) { return norm_type == 0 ? sum : std::pow(sum, 1 / norm_type); }

// Where some of the parameters are shards: the norm of the whole gradients, for which all ranks must ask. Undefined: none is.
at::Tensor norm_with_other_ranks(const Tensors& parameters, double norm_type, std::optional<bool> foreach) {
  std::vector<std::pair<Group, TensorVector>> parts;
  bool has_shards = false;
  for (const auto& parameter : parameters.list()) {
    const auto group = cohort::parallel::sharding_group(parameter);
    has_shards |= group.defined();
    auto part = std::find_if(parts.begin(), parts.end(), [&](const auto& known) { return known.first == group; });
    if (part == parts.end()) part = parts.insert(parts.end(), std::pair(group, TensorVector()));
    if (parameter.grad().defined()) part->second.push_back(parameter.grad());
  }
  if (!has_shards) return {};
  const bool takes_extreme = std::isinf(norm_type);
  std::vector<double> norms;
  for (const auto& [group, grads] : parts) {
    auto norm = get_total_norm(grads, norm_type, false, foreach).item<double>();
    if (group) {
      auto shared = at::scalar_tensor(takes_extreme ? norm : to_summand(norm, norm_type), at::kDouble).view({1});
      const auto extreme = norm_type > 0 ? ReduceOp::MAX : ReduceOp::MIN;
      all_reduce(shared, {.op = takes_extreme ? extreme : ReduceOp::SUM, .group = group});
      norm = takes_extreme ? shared.item<double>() : from_sum(shared.item<double>(), norm_type);
    }
    norms.push_back(norm);
  }
  if (norms.size() == 1) return at::scalar_tensor(norms.front(), at::kFloat);
  return at::linalg_vector_norm(at::tensor(norms, at::kDouble), norm_type).to(at::kFloat);
}

}  // namespace

at::Tensor get_total_norm(const Tensors& tensors, double norm_type, bool error_if_nonfinite,
                          std::optional<bool> foreach) {
  const at::NoGradGuard no_grad;
  if (tensors.list().empty()) return at::scalar_tensor(0.0, at::kFloat);
  const auto first_device = tensors.list().front().device();
  TensorVector norms;
  for (const auto& group : by_device_and_dtype(tensors.list())) {
    if (uses_foreach(group, foreach)) {
      for (const auto& norm : at::_foreach_norm(group, norm_type)) norms.push_back(norm.to(first_device));
    } else {
      for (const auto& tensor : group) norms.push_back(at::linalg_vector_norm(tensor, norm_type).to(first_device));
    }
  }
  const auto total_norm = at::linalg_vector_norm(at::stack(norms), norm_type);
  if (error_if_nonfinite) check_finite(total_norm, norm_type);
  return total_norm;
}

void clip_grads_with_norm_(const Tensors& parameters, double max_norm, const at::Tensor& total_norm,
                           std::optional<bool> foreach) {
  const at::NoGradGuard no_grad;
  const auto groups = by_device_and_dtype(gradients_of(parameters));
  if (groups.empty()) return;
  // Multiplies by 1 where nothing is to be clipped: a comparison would have the host wait for the device.
  const auto coefficient = total_norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);  // Python's division
  for (const auto& group : groups) {
    const auto there = coefficient.to(group.front().device());
    if (uses_foreach(group, foreach)) {
      at::_foreach_mul_(group, there);
    } else {
      for (const auto& grad : group) grad.mul_(there);
    }
  }
}

at::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, double norm_type, bool error_if_nonfinite,
                           std::optional<bool> foreach) {
  auto total_norm = norm_with_other_ranks(parameters, norm_type, foreach);
  if (!total_norm.defined()) total_norm = get_total_norm(gradients_of(parameters), norm_type, false, foreach);
  if (error_if_nonfinite) check_finite(total_norm, norm_type);
  clip_grads_with_norm_(parameters, max_norm, total_norm, foreach);
  return total_norm;
}

void clip_grad_value_(const Tensors& parameters, double clip_value, std::optional<bool> foreach) {
  const at::NoGradGuard no_grad;
  for (const auto& group : by_device_and_dtype(gradients_of(parameters))) {
    if (uses_foreach(group, foreach)) {
      at::_foreach_clamp_min_(group, -clip_value);
      at::_foreach_clamp_max_(group, clip_value);
    } else {
      for (const auto& grad : group) grad.clamp_(-clip_value, clip_value);
    }
  }
}

}  // namespace cohort::nn::utils
