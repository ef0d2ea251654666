#include "cohort/parallel/optim/clip_grad.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/ForeachUtils.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/tensors/plain_tensor.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/optim/purpose.h"

namespace cohort::nn::utils {
namespace {

using TensorVector = std::vector<at::Tensor>;

TensorVector defined_ones(const TensorVector& tensors) {
  TensorVector found;
  for (const auto& tensor : tensors) {
    if (tensor.defined()) found.push_back(tensor);
  }
  return found;
}

TensorVector grads_that_exist(const Tensors& parameters) {
  TensorVector grads;
  for (const auto& parameter : optim::each_once(parameters.list())) {
    cohort::parallel::check_has_own_gradient(parameter);
    grads.push_back(parameter.grad());
  }
  return defined_ones(grads);
}

// Uses PyTorch's own grouping, whose order determines the order in which norms are summed.
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

// Follows the list of torch/utils/_foreach_utils.py.
bool has_foreach(c10::DeviceType type) {
  return type == at::kCPU || type == at::kCUDA || type == at::kXPU || type == at::kMTIA || type == at::kPrivateUse1;
}

bool uses_foreach(const TensorVector& group, std::optional<bool> foreach) {
  const auto type = group.front().device().type();
  TORCH_CHECK(!foreach.value_or(false) || has_foreach(type),
              "foreach=true was passed, but can't use the foreach API on ",
              c10::DeviceTypeName(type, /*lower_case=*/true), " tensors");
  // LibTorch's list operations cannot write through lazily conjugated views.
  const bool are_lazy = std::any_of(group.begin(), group.end(), comm::is_lazy);
  return foreach.value_or(true) && has_foreach(type) && !are_lazy;
}

// Formats as Python writes a float.
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

// Gradients that are sharded over the same groups, or not at all. A rank may have no elements of them.
struct Part {
  std::vector<Group> groups;
  at::Device device;
  TensorVector grads;  // one per parameter
};

std::vector<Part> dtensor_data(const Gradients& gradients) {
  std::vector<Part> data;
  for (size_t i = 0; i < gradients.tensors.size(); ++i) {
    const auto& groups = gradients.groups[i];
    auto part = std::find_if(data.begin(), data.end(), [&](const Part& known) { return known.groups == groups; });
    if (part == data.end()) part = data.insert(data.end(), Part{groups, gradients.parameters[i].device(), {}});
    part->grads.push_back(gradients.tensors[i]);
  }
  return data;
}

bool has_dtensor(const TensorVector& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return is_dtensor(tensor); });
}

// Returns the local tensors of DTensors: the same memory, except for Partial ones, which stay as they are.
TensorVector with_own_memory(TensorVector tensors) {
  for (auto& tensor : tensors) {
    if (!is_dtensor(tensor)) continue;
    const auto& placements = DTensor(tensor).placements();
    const bool is_partial =
        std::any_of(placements.begin(), placements.end(), [](const auto& placement) { return placement.is_partial(); });
    if (is_partial) continue;
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();  // it will be written to
    tensor = cohort::parallel::own_shard(tensor);
  }
  return tensors;
}

// Computes the norm of a vector from norms of its parts. Each rank gives a list of numbers; the numbers of the ranks are summed
// one by one, or their maximum is taken. The same combines several vectors, if the order is not 0. Numbers are float64 and stay
// on the device, so that the host does not wait for it.
class PartialNorm {
 public:
  PartialNorm(double order, std::optional<bool> foreach) : order_(order), foreach_(foreach) {}

  at::Tensor numbers_of(const Part& part) const {
    const auto options = at::TensorOptions(at::kDouble).device(part.device);
    if (order_ == 0) return are_nonzero(part.grads, options);
    TensorVector present;
    for (const auto& grad : part.grads) {
      if (grad.defined() && grad.numel() > 0) present.push_back(grad);
    }
    at::Tensor norm;
    if (!present.empty()) norm = get_total_norm(present, order_, false, foreach_).to(options);
    if (!std::isinf(order_)) return norm.defined() ? norm.pow(order_).unsqueeze(0) : at::zeros({1}, options);
    const auto nothing = at::full({}, -kInfinity, options);
    if (!norm.defined()) return at::stack({nothing, at::zeros({}, options)});
    // A maximum may hide a NaN.
    const auto is_nan = norm.isnan();
    return at::stack({at::where(is_nan, nothing, order_ > 0 ? norm : -norm), is_nan.to(at::kDouble)});
  }

  void reduce(const at::Tensor& numbers, const Part& part) const {
    const comm::CalledFor purpose(optim::kClipGradNorm);
    const bool takes_largest = order_ == 0 || std::isinf(order_);
    for (const auto& group : part.groups) {
      all_reduce(numbers, {.op = takes_largest ? ReduceOp::MAX : ReduceOp::SUM, .group = group});
    }
  }

  // Computes the norm from the numbers of all vectors.
  at::Tensor norm_of(const TensorVector& vectors) const {
    if (!std::isinf(order_)) {
      const auto sum = at::cat(vectors).sum();
      return order_ == 0 ? sum : sum.pow(1 / order_);
    }
    const auto all = at::stack(vectors);
    const auto largest = all.select(1, 0).amax();
    const auto has_nan = all.select(1, 1).ne(0).any();
    return (order_ > 0 ? largest.clamp_min(0) : -largest).masked_fill(has_nan, std::nan(""));
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  // PyTorch's norm of order 0 counts the tensors that are not all zeros; several ranks may have shards of one.
  static at::Tensor are_nonzero(const TensorVector& grads, const at::TensorOptions& options) {
    TensorVector flags;
    for (const auto& grad : grads) {
      flags.push_back(grad.defined() ? grad.count_nonzero().gt(0).to(options) : at::zeros({}, options));
    }
    return at::stack(flags);
  }

  double order_;
  std::optional<bool> foreach_;
};

}  // namespace

at::Tensor get_total_norm(const Tensors& tensors, double norm_type, bool error_if_nonfinite,
                          std::optional<bool> foreach) {
  const at::NoGradGuard no_grad;
  if (tensors.list().empty()) return at::scalar_tensor(0.0, at::kFloat);
  if (has_dtensor(tensors.list())) {
    Gradients gradients{tensors.list(), tensors.list(), {}};
    for (const auto& tensor : tensors.list()) {
      gradients.groups.push_back(is_dtensor(tensor) ? cohort::parallel::sharding_groups(tensor) : std::vector<Group>());
    }
    return get_total_norm(gradients, norm_type, error_if_nonfinite, foreach);
  }
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

Gradients gradients_of(const Tensors& parameters) {
  Gradients gradients;
  for (const auto& parameter : optim::each_once(parameters.list())) {
    cohort::parallel::check_has_own_gradient(parameter);
    gradients.parameters.push_back(parameter);
    gradients.tensors.push_back(parameter.grad());
    // A DTensor's gradient may have other placements.
    const bool says_so = is_dtensor(parameter.grad()) && !cohort::parallel::is_sharded(parameter);
    gradients.groups.push_back(cohort::parallel::sharding_groups(says_so ? parameter.grad() : parameter));
  }
  return gradients;
}

at::Tensor get_total_norm(const Gradients& given, double norm_type, bool error_if_nonfinite,
                          std::optional<bool> foreach) {
  const at::NoGradGuard no_grad;
  auto gradients = given;
  for (auto& tensor : gradients.tensors) tensor = cohort::parallel::own_shard(tensor);
  const auto present = defined_ones(gradients.tensors);
  const auto& groups = gradients.groups;
  if (std::all_of(groups.begin(), groups.end(), [](const auto& list) { return list.empty(); })) {
    return get_total_norm(present, norm_type, error_if_nonfinite, foreach);
  }
  auto options = gradients.parameters.front().options().dtype(at::kFloat).requires_grad(false);
  if (!present.empty()) {
    auto dtype = present.front().scalar_type();
    for (const auto& grad : present) dtype = at::promote_types(dtype, grad.scalar_type());
    options = present.front().options().dtype(c10::toRealValueType(dtype)).requires_grad(false);
  }
  const PartialNorm partial(norm_type, foreach);
  TensorVector numbers;
  for (const auto& part : dtensor_data(gradients)) {
    const auto own = partial.numbers_of(part);
    partial.reduce(own, part);
    numbers.push_back(own.to(options.device()));
  }
  const auto total_norm = partial.norm_of(numbers).to(options.dtype());
  if (error_if_nonfinite) check_finite(total_norm, norm_type);
  return total_norm;
}

void clip_grads_with_norm_(const Tensors& parameters, double max_norm, const at::Tensor& total_norm,
                           std::optional<bool> foreach) {
  const at::NoGradGuard no_grad;
  const auto groups = by_device_and_dtype(with_own_memory(grads_that_exist(parameters)));
  if (groups.empty()) return;
  const auto norm = is_dtensor(total_norm) ? DTensor(total_norm).full_tensor() : total_norm;
  // Multiplies by 1 if nothing needs clipping: a comparison would make the host wait for the device.
  const auto coefficient = norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);  // Python's division
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
  const auto total_norm = get_total_norm(gradients_of(parameters), norm_type, error_if_nonfinite, foreach);
  clip_grads_with_norm_(parameters, max_norm, total_norm, foreach);
  return total_norm;
}

void clip_grad_value_(const Tensors& parameters, double clip_value, std::optional<bool> foreach) {
  const at::NoGradGuard no_grad;
  for (const auto& group : by_device_and_dtype(with_own_memory(grads_that_exist(parameters)))) {
    if (uses_foreach(group, foreach)) {
      at::_foreach_clamp_min_(group, -clip_value);
      at::_foreach_clamp_max_(group, clip_value);
    } else {
      for (const auto& grad : group) grad.clamp_(-clip_value, clip_value);
    }
  }
}

}  // namespace cohort::nn::utils
