/// Subset: some examples of a dataset. random_split(): divides a dataset at random, into the same indices as
/// torch.utils.data.random_split (torch/utils/data/dataset.py):
///
///     const auto parts = random_split(dataset, {0.8, 0.2}, make_generator(42));
///     DataLoader train(parts[0], {.batch_size = 32, .shuffle = true});
///
/// Thread-safety: const; as the dataset inside.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/datasets/share.h"
#include "cohort/export.h"

namespace cohort::data {

namespace detail {

/// Returns indices[index]; a negative index counts from the end. Throws c10::IndexError, with the text of Python's list.
COHORT_API int64_t index_in(const std::vector<int64_t>& indices, int64_t index);
COHORT_API std::vector<std::vector<int64_t>> split_at_random(int64_t size, const std::vector<int64_t>& lengths,
                                                             const std::optional<at::Generator>& generator);
COHORT_API std::vector<std::vector<int64_t>> split_at_random(int64_t size, const std::vector<double>& fractions,
                                                             const std::optional<at::Generator>& generator);

}  // namespace detail

template <typename Dataset>
class Subset {
 public:
  /// `indices`: into the dataset, in any order and number; checked when they are read. Throws c10::ValueError for a null pointer.
  Subset(std::shared_ptr<Dataset> dataset, std::vector<int64_t> indices)
      : dataset_(detail::not_null(std::move(dataset), "Subset")), indices_(std::move(indices)) {}
  Subset(Dataset dataset, std::vector<int64_t> indices)
      : Subset(std::make_shared<Dataset>(std::move(dataset)), std::move(indices)) {}

  /// Throws c10::IndexError outside [-size(), size() - 1].
  auto get(int64_t index) const { return dataset_->get(detail::index_in(indices_, index)); }
  /// Available if the dataset has it.
  auto get_batch(const std::vector<int64_t>& indices) const requires requires(Dataset& dataset) {
    dataset.get_batch(indices);
  }
  {
    std::vector<int64_t> inner;
    inner.reserve(indices.size());
    for (const int64_t index : indices) inner.push_back(detail::index_in(indices_, index));
    return dataset_->get_batch(inner);
  }
  int64_t size() const { return static_cast<int64_t>(indices_.size()); }

  /// See detail::tell_epoch().
  void begin_epoch(int64_t epoch, detail::EpochBy who) const { detail::tell_epoch(*dataset_, epoch, who); }

  const std::vector<int64_t>& indices() const { return indices_; }
  Dataset& dataset() const { return *dataset_; }

 private:
  std::shared_ptr<Dataset> dataset_;
  std::vector<int64_t> indices_;
};

/// `lengths`: either std::vector<int64_t> whose sum is the size of the dataset, or std::vector<double>, fractions whose sum is 1.
/// Fractions are rounded down, and the rest goes to the first parts, one example each. Lengths whose sum is 1 are fractions, as
/// in Python. Warns if a part is empty. `generator`: LibTorch's default CPU generator by default. Throws c10::ValueError, with
/// Python's texts, for other sums, for fractions outside [0, 1], and for negative lengths.
template <typename Dataset, typename Number>
auto random_split(Dataset dataset, const std::vector<Number>& lengths,
                  const std::optional<at::Generator>& generator = std::nullopt) {
  using Wide = std::conditional_t<std::is_floating_point_v<Number>, double, int64_t>;
  const auto shared = detail::share(std::move(dataset), "random_split");
  std::vector<Subset<detail::SharedType<Dataset>>> parts;
  const std::vector<Wide> wide(lengths.begin(), lengths.end());
  for (auto& indices : detail::split_at_random(detail::dataset_size(*shared), wide, generator)) {
    parts.emplace_back(shared, std::move(indices));
  }
  return parts;
}
template <typename Dataset, typename Number>
auto random_split(Dataset dataset, std::initializer_list<Number> lengths,
                  const std::optional<at::Generator>& generator = std::nullopt) {
  return random_split(std::move(dataset), std::vector<Number>(lengths), generator);
}

}  // namespace cohort::data
