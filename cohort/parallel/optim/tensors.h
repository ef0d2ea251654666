/// Tensors: an argument that is a list of tensors, given as one tensor, as a list in braces, or as any range of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <initializer_list>
#include <ranges>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cohort::optim {

template <class Range>
concept TensorRange =
    std::ranges::input_range<Range> && std::convertible_to<std::ranges::range_reference_t<Range>, at::Tensor> &&
    !std::is_convertible_v<Range, const at::Tensor&>;

class Tensors {
 public:
  /// Implicit on purpose: clip_grad_norm_(net->parameters(), 1.0), clip_grad_norm_(net->weight, 1.0).
  /*implicit*/ Tensors(const at::Tensor& tensor) : list_{tensor} {}
  /*implicit*/ Tensors(std::initializer_list<at::Tensor> tensors) : list_(tensors) {}
  /*implicit*/ Tensors(std::vector<at::Tensor> tensors) : list_(std::move(tensors)) {}
  template <TensorRange Range>
  requires(!std::same_as<std::remove_cvref_t<Range>, std::vector<at::Tensor>> &&
           !std::same_as<std::remove_cvref_t<Range>, Tensors>)
      /*implicit*/ Tensors(Range&& range) {
    for (auto&& tensor : range) list_.emplace_back(tensor);
  }

  const std::vector<at::Tensor>& list() const { return list_; }

 private:
  std::vector<at::Tensor> list_;
};

/// Removes repeated tensors: modules that share a parameter list it several times.
inline std::vector<at::Tensor> each_once(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  std::unordered_set<const void*> seen;
  for (const at::Tensor& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) result.push_back(tensor);
  }
  return result;
}

}  // namespace cohort::optim
