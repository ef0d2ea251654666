#include "cohort/parallel/ddp/buckets/bucket.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <utility>

#include "cohort/comm/tensors/plain_tensor.h"
#include "cohort/parallel/ddp/buckets/bucket_memory.h"
#include "cohort/parallel/ddp/buckets/device_streams.h"
#include "cohort/parallel/ddp/buckets/in_place.h"
#include "cohort/parallel/ddp/settings/hook_result.h"

namespace cohort::ddp {
namespace {

// Below this at::mul runs on one thread anyway, and its dispatch costs more than the arithmetic.
constexpr int64_t kPlainLoopElements = 32 * 1024;

template <class T>
void scale_loop(T* destination, const T* source, T factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) destination[i] = source[i] * factor;
}

bool has_plain_layout(const at::Tensor& destination, const at::Tensor& source) {
  return source.device().is_cpu() && source.numel() <= kPlainLoopElements && source.layout() == at::kStrided &&
         destination.strides() == source.strides() && source.is_non_overlapping_and_dense() && !source.is_neg();
}

// `place`: the tensor to which the gradient is copied. `alias`: where it lives after the reduction.
void check_matches(const at::Tensor& grad, const at::Tensor& place, const at::Tensor& alias) {
  TORCH_CHECK(!grad.is_sparse(), "[cohort] a parameter of sizes ", place.sizes(),
              " has a sparse gradient that was not announced; give ddp::Reducer a flag for it in "
              "ReducerOptions::expect_sparse_gradient (DistributedDataParallel knows those of torch::nn::Embedding and "
              "EmbeddingBag only)");
  const bool has_dtype = grad.scalar_type() == place.scalar_type() || grad.scalar_type() == alias.scalar_type();
  TORCH_CHECK(has_dtype && grad.device() == place.device(), "Expected ", place.toString(), ", got ", grad.toString());
}

}  // namespace

void scale_into(const at::Tensor& destination, const at::Tensor& source, double factor) {
  if (has_plain_layout(destination, source)) {
    if (source.scalar_type() == at::kFloat) {
      return scale_loop(destination.mutable_data_ptr<float>(), source.const_data_ptr<float>(),
                        static_cast<float>(factor), source.numel());
    }
    if (source.scalar_type() == at::kDouble) {
      return scale_loop(destination.mutable_data_ptr<double>(), source.const_data_ptr<double>(), factor,
                        source.numel());
    }
  }
  auto result = destination;
  const auto scalar = at::scalar_tensor(factor, at::kDouble);
  scalar.unsafeGetTensorImpl()->set_wrapped_number(true);  // a number: takes no part in type promotion
  at::mul_out(result, source, scalar);
}

Bucket::Bucket(std::vector<size_t> indices, const std::vector<at::Tensor>& parameters, at::Tensor contents,
               at::Tensor gradients, const std::vector<char>& in_place)
    : indices_(std::move(indices)),
      is_sparse_(!contents.defined()),
      contents_(std::move(contents)),
      gradients_(gradients.defined() ? std::move(gradients) : contents_) {
  if (is_sparse_) return;
  int64_t offset = 0;
  for (const size_t index : indices_) {
    is_in_place_.push_back(!in_place.empty() && in_place[index]);
    layouts_.push_back(is_in_place_.back() ? layout_of(parameters[index]) : at::Tensor());
    if (is_in_place_.back()) {
      has_in_place_ = true;
      slots_.emplace_back();
      aliases_.emplace_back();
      continue;
    }
    slots_.push_back(alias_of(contents_, offset, parameters[index]));
    aliases_.push_back(gradients_.is_same(contents_) ? slots_.back() : alias_of(gradients_, offset, parameters[index]));
    offset += parameters[index].numel();
  }
}

at::Tensor Bucket::take(size_t slot, const at::Tensor& parameter, int world_size, Averaging averaging) {
  const at::NoGradGuard no_grad;
  if (is_sparse_) {
    take_sparse(parameter, world_size, averaging);
    return {};
  }
  if (is_in_place_[slot]) return take_in_place(slot, parameter);
  if (has_in_place_) averaging = Averaging::kNone;
  const auto& place = slots_[slot];
  auto& grad = parameter.mutable_grad();
  if (!grad.defined()) {
    place.zero_();
    return {};
  }
  check_matches(grad, place, aliases_[slot]);
  // Users may wrap the same memory in another tensor (with detach, say), so this compares data, not identity.
  const bool in_place = comm::starts_like(grad, place) && grad.numel() > 0;
  if (in_place && averaging == Averaging::kDivideInPlace) {
    grad.div_(world_size);
    return {};
  }
  if (averaging != Averaging::kNone) {
    scale_into(place, grad, 1.0 / world_size);
  } else if (!in_place) {
    place.copy_(grad);
  }
  return in_place ? at::Tensor() : std::exchange(grad, aliases_[slot]);
}

at::Tensor Bucket::take_in_place(size_t slot, const at::Tensor& parameter) {
  auto& grad = parameter.mutable_grad();
  auto& taken = aliases_[slot];
  const auto& layout = layouts_[slot];
  const auto make = [&] {
    return at::empty_strided(layout.sizes(), layout.strides(), layout.options().device(parameter.device()));
  };
  if (!grad.defined()) {
    taken = make().zero_();
    return {};
  }
  check_matches(grad, parameter, parameter);
  if (can_be_reduced_in_place(grad, layout)) {
    taken = grad;
    return {};
  }
  taken = make().copy_(grad);
  // give() copies the result to the place where others may look at it.
  const bool stays = !grad.requires_grad() && grad.layout() == at::kStrided && grad.is_non_overlapping_and_dense();
  return stays ? at::Tensor() : std::exchange(grad, taken);
}

std::vector<at::Tensor> Bucket::parts() const {
  std::vector<at::Tensor> parts;
  if (contents_.numel() > 0) parts.push_back(contents_);
  for (size_t slot = 0; slot < indices_.size(); ++slot) {
    if (is_in_place_[slot]) parts.push_back(in_order_of_memory(aliases_[slot]));
  }
  return parts;
}

std::vector<at::Tensor> Bucket::zero_parts(const std::vector<at::Tensor>& parameters) const {
  std::vector<at::Tensor> parts;
  if (contents_.numel() > 0) parts.push_back(at::zeros_like(contents_));
  for (size_t slot = 0; slot < indices_.size(); ++slot) {
    if (is_in_place_[slot]) parts.push_back(at::zeros({parameters[indices_[slot]].numel()}, contents_.options()));
  }
  return parts;
}

std::vector<at::Tensor> Bucket::take_all(const std::vector<at::Tensor>& parameters, int world_size,
                                         Averaging averaging) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> places;
  std::vector<at::Tensor> gradients;
  for (size_t slot = 0; slot < indices_.size(); ++slot) {
    auto& grad = parameters[indices_[slot]].mutable_grad();
    if (!grad.defined()) {
      slots_[slot].zero_();
      continue;
    }
    check_matches(grad, slots_[slot], aliases_[slot]);
    if (comm::starts_like(grad, slots_[slot])) continue;
    used_in_current_stream(grad);
    places.push_back(slots_[slot]);
    gradients.push_back(std::exchange(grad, aliases_[slot]));
  }
  if (!places.empty()) at::_foreach_copy_(places, gradients);
  if (averaging != Averaging::kNone) contents_.div_(world_size);
  return gradients;
}

void Bucket::take_sparse(const at::Tensor& parameter, int world_size, Averaging averaging) {
  const auto& grad = parameter.grad();
  TORCH_CHECK(grad.defined(), "Expected sparse gradient to be defined.");
  TORCH_CHECK(grad.is_sparse(),
              "Expected variable to have sparse gradient. (ReducerOptions::expect_sparse_gradient announces one "
              "for a parameter of sizes ",
              parameter.sizes(), ", whose gradient is dense.)");
  contents_ = grad;
  if (averaging == Averaging::kNone) return;
  contents_.div_(world_size);
}

void Bucket::accept(const at::Tensor& result) {
  if (!is_sparse_) return copy_result(gradients_, result);
  const at::NoGradGuard no_grad;
  if (!result.is_same(contents_)) contents_.copy_(result);
}

void Bucket::give(size_t slot, const at::Tensor& parameter) {
  if (is_sparse_) return;
  const at::NoGradGuard no_grad;
  auto& grad = parameter.mutable_grad();
  const auto& result = aliases_[slot];
  const bool is_there = grad.defined() && comm::starts_like(grad, result);
  if (!is_there && is_in_place_[slot] && grad.defined()) {
    grad.copy_(result);
  } else if (!is_there) {
    grad = result;
  }
  forget(slot);
}

void Bucket::forget(size_t slot) {
  if (!is_sparse_ && is_in_place_[slot]) aliases_[slot].reset();
}

void Bucket::abandon(size_t slot, const at::Tensor& parameter) {
  if (is_sparse_ || !is_in_place_[slot] || !aliases_[slot].defined()) return;
  const at::NoGradGuard no_grad;
  auto& grad = parameter.mutable_grad();
  if (grad.defined() && comm::starts_like(grad, aliases_[slot])) grad = grad.clone();
  forget(slot);
}

void Bucket::adopt(size_t slot, const at::Tensor& parameter) {
  auto& grad = parameter.mutable_grad();
  if (is_sparse_ || is_in_place_[slot] || !grad.defined() || grad.is_sparse()) return;
  const at::NoGradGuard no_grad;
  aliases_[slot].copy_(grad);
  grad = aliases_[slot];
}

}  // namespace cohort::ddp
