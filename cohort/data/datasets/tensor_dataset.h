/// TensorDataset: tensors of equal first size, as torch.utils.data.TensorDataset: example i is row i of each.
///
///     DataLoader loader(TensorDataset(inputs, targets), {.batch_size = 32});
///     for (auto& [input, target] : loader) ...
///
/// A loader reads whole batches with one index_select per tensor: faster than stacking rows, with the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

namespace detail {
/// Returns the common first size. Throws c10::ValueError if the tensors differ in it.
COHORT_API int64_t check_rows(const at::Tensor* tensors, size_t count);
COHORT_API at::Tensor select_row(const at::Tensor& tensor, int64_t index);
COHORT_API at::Tensor select_rows(const at::Tensor& tensor, const std::vector<int64_t>& indices);
}  // namespace detail

template <size_t N>
class TensorDataset {
 public:
  template <typename... Tensors>
  requires(sizeof...(Tensors) == N &&
           (std::is_convertible_v<Tensors, at::Tensor> && ...)) explicit TensorDataset(Tensors&&... tensors)
      : tensors_{std::forward<Tensors>(tensors)...}, size_(detail::check_rows(tensors_.data(), N)) {}

  /// Returns a tuple of N rows. Throws c10::IndexError outside [0, size() - 1].
  auto get(int64_t index) const {
    return tuple_of([index](const at::Tensor& tensor) { return detail::select_row(tensor, index); });
  }
  /// Returns the stacked rows of a batch.
  auto get_batch(const std::vector<int64_t>& indices) const {
    return tuple_of([&indices](const at::Tensor& tensor) { return detail::select_rows(tensor, indices); });
  }
  int64_t size() const { return size_; }
  const std::array<at::Tensor, N>& tensors() const { return tensors_; }

 private:
  template <typename Select>
  auto tuple_of(Select select) const {
    return std::apply([&](const auto&... tensor) { return std::make_tuple(select(tensor)...); }, tensors_);
  }

  std::array<at::Tensor, N> tensors_;
  int64_t size_;
};

template <typename... Tensors>
TensorDataset(Tensors&&...) -> TensorDataset<sizeof...(Tensors)>;
template <size_t N>
TensorDataset(const TensorDataset<N>&) -> TensorDataset<N>;
template <size_t N>
TensorDataset(TensorDataset<N>&) -> TensorDataset<N>;
template <size_t N>
TensorDataset(TensorDataset<N>&&) -> TensorDataset<N>;

}  // namespace cohort::data
