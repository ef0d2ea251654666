/// ConcatDataset: datasets one after the other, as torch.utils.data.ConcatDataset:
///
///     ConcatDataset days(std::vector{morning, evening});   // of one type
///     ConcatDataset all(images, scans);                    // of several types whose examples are of one type
///
/// Thread-safety: const; as the datasets inside.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/datasets/share.h"
#include "cohort/export.h"

namespace cohort::data {

namespace detail {

/// A dataset in a list of datasets, and an index into it.
struct PlaceInDatasets {
  size_t dataset;
  int64_t index;
};
/// Returns the cumulative sums of the sizes. Throws c10::ValueError if there are no sizes.
COHORT_API std::vector<int64_t> cumulative_sizes_of(const std::vector<int64_t>& sizes);
/// Throws c10::ValueError for an index below -size, and c10::IndexError for an index of size or more.
COHORT_API PlaceInDatasets place_in(const std::vector<int64_t>& cumulative_sizes, int64_t index);

}  // namespace detail

template <typename Example>
class ConcatDataset {
 public:
  /// Takes datasets, or shared pointers to them. Throws c10::ValueError without datasets.
  template <typename Dataset>
  explicit ConcatDataset(std::vector<Dataset> datasets) {
    std::vector<int64_t> sizes;
    for (Dataset& dataset : datasets) add(std::move(dataset), sizes);
    cumulative_sizes_ = detail::cumulative_sizes_of(sizes);
  }
  template <typename... Datasets>
  requires(MapDataset<detail::SharedType<Datasets>>&&...) explicit ConcatDataset(Datasets... datasets) {
    std::vector<int64_t> sizes;
    (add(std::move(datasets), sizes), ...);
    cumulative_sizes_ = detail::cumulative_sizes_of(sizes);
  }

  /// A negative index counts from the end.
  Example get(int64_t index) const {
    const auto place = detail::place_in(cumulative_sizes_, index);
    return get_of_[place.dataset](place.index);
  }
  int64_t size() const { return cumulative_sizes_.back(); }
  /// See detail::tell_epoch().
  void begin_epoch(int64_t epoch, detail::EpochBy who) const {
    for (const auto& tell : tell_epoch_) tell(epoch, who);
  }
  const std::vector<int64_t>& cumulative_sizes() const { return cumulative_sizes_; }

 private:
  template <typename Dataset>
  void add(Dataset dataset, std::vector<int64_t>& sizes) {
    auto shared = detail::share(std::move(dataset), "ConcatDataset");
    sizes.push_back(detail::dataset_size(*shared));
    tell_epoch_.push_back([shared](int64_t epoch, detail::EpochBy who) { detail::tell_epoch(*shared, epoch, who); });
    get_of_.push_back([shared](int64_t index) -> Example { return shared->get(index); });
  }

  std::vector<std::function<Example(int64_t)>> get_of_;
  std::vector<std::function<void(int64_t, detail::EpochBy)>> tell_epoch_;
  std::vector<int64_t> cumulative_sizes_;
};

template <typename Dataset>
ConcatDataset(std::vector<Dataset>) -> ConcatDataset<detail::ExampleOf<detail::SharedType<Dataset>>>;
template <typename First, typename... Datasets>
requires MapDataset<detail::SharedType<First>> ConcatDataset(First, Datasets...)
->ConcatDataset<detail::ExampleOf<detail::SharedType<First>>>;

}  // namespace cohort::data
