#include "cohort/comm/tensors/contiguous_copies.h"

#include <ATen/ATen.h>

namespace cohort::comm {
namespace {

template <class Convert>
std::vector<at::Tensor> each(const std::vector<at::Tensor>& tensors, Convert convert) {
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const auto& tensor : tensors) result.push_back(convert(tensor));
  return result;
}

}  // namespace

at::Tensor ContiguousCopies::sent(const at::Tensor& tensor) const { return as_plain(tensor); }

at::Tensor ContiguousCopies::received(const at::Tensor& tensor, bool apart) {
  if (!apart && is_plain(tensor)) return tensor;
  const auto copy = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
  copy_back_later(tensor, copy);
  return copy;
}

at::Tensor ContiguousCopies::exchanged(const at::Tensor& tensor) {
  if (is_plain(tensor)) return tensor;
  const auto copy = plain_copy(tensor);
  copy_back_later(tensor, copy);
  return copy;
}

std::vector<at::Tensor> ContiguousCopies::sent(const std::vector<at::Tensor>& tensors) const {
  return each(tensors, [this](const at::Tensor& tensor) { return sent(tensor); });
}

std::vector<at::Tensor> ContiguousCopies::received(const std::vector<at::Tensor>& tensors, bool apart) {
  return each(tensors, [this, apart](const at::Tensor& tensor) { return received(tensor, apart); });
}

std::vector<at::Tensor> ContiguousCopies::exchanged(const std::vector<at::Tensor>& tensors) {
  return each(tensors, [this](const at::Tensor& tensor) { return exchanged(tensor); });
}

void ContiguousCopies::copy_back() const {
  const at::NoGradGuard no_grad;
  for (auto [tensor, copy] : copies_) {
    if (copy.scalar_type() == tensor.scalar_type() && copy.is_contiguous()) {
      tensor.copy_(copy.view(tensor.sizes()));
    } else if (is_plain(tensor)) {
      as_bytes(tensor).view(copy.sizes()).copy_(copy);
    } else {
      // A new tensor has an address that is aligned for every dtype.
      const auto aligned = copy.clone(at::MemoryFormat::Contiguous).view({copy.numel()});
      tensor.copy_(aligned.view(tensor.scalar_type()).view(tensor.sizes()));
    }
  }
}

at::Tensor pack(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  return at::cat(each(tensors, [](const at::Tensor& tensor) { return as_bytes(as_plain(tensor)); }));
}

}  // namespace cohort::comm
