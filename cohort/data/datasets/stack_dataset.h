/// StackDataset: datasets side by side, as torch.utils.data.StackDataset: example i has example i of each dataset.
///
///     StackDataset pairs(images, texts);                             // get(i): std::tuple(images.get(i), texts.get(i))
///     auto samples = stack_as<Sample>(images, texts);                // get(i): Sample{images.get(i), texts.get(i)}
///
/// Thread-safety: const; as the datasets inside.
#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/datasets/share.h"
#include "cohort/export.h"

namespace cohort::data {

namespace detail {

/// Returns the size of all. Throws c10::ValueError if sizes differ.
COHORT_API int64_t equal_size_of(const std::vector<int64_t>& sizes);

/// Joins the parts of an example to a tuple.
struct AsTuple {
  template <typename... Parts>
  auto operator()(Parts&&... parts) const {
    return std::make_tuple(std::forward<Parts>(parts)...);
  }
};
template <typename Struct>
struct AsStruct {
  template <typename... Parts>
  Struct operator()(Parts&&... parts) const {
    return Struct{std::forward<Parts>(parts)...};
  }
};

/// True if each dataset reads whole batches, and these can be joined to one batch.
template <typename Join, typename... Datasets>
concept StackReadsBatches = requires(const std::vector<int64_t>& indices, Datasets&... datasets) {
  Join()(datasets.get_batch(indices)...);
};

}  // namespace detail

template <typename Join, typename... Datasets>
class BasicStackDataset {
 public:
  /// Throws c10::ValueError if their sizes differ, or for a null pointer.
  explicit BasicStackDataset(std::shared_ptr<Datasets>... datasets)
      : datasets_(detail::not_null(std::move(datasets), "StackDataset")...), size_(equal_size()) {}

  /// Throws what the datasets throw.
  auto get(int64_t index) const {
    return std::apply([index](const auto&... dataset) { return Join()(dataset->get(index)...); }, datasets_);
  }
  auto get_batch(const std::vector<int64_t>& indices) const requires detail::StackReadsBatches<Join, Datasets...> {
    return std::apply([&](const auto&... dataset) { return Join()(dataset->get_batch(indices)...); }, datasets_);
  }
  int64_t size() const { return size_; }
  /// See detail::tell_epoch().
  void begin_epoch(int64_t epoch, detail::EpochBy who) const {
    std::apply([&](const auto&... dataset) { (detail::tell_epoch(*dataset, epoch, who), ...); }, datasets_);
  }
  const std::tuple<std::shared_ptr<Datasets>...>& datasets() const { return datasets_; }

 private:
  int64_t equal_size() const {
    return std::apply([](const auto&... dataset) { return detail::equal_size_of({detail::dataset_size(*dataset)...}); },
                      datasets_);
  }

  std::tuple<std::shared_ptr<Datasets>...> datasets_;
  int64_t size_;
};

template <typename... Datasets>
class StackDataset : public BasicStackDataset<detail::AsTuple, Datasets...> {
 public:
  /// Takes datasets, or shared pointers to them.
  template <typename... Given>
  requires(sizeof...(Given) == sizeof...(Datasets) &&
           (std::is_same_v<detail::SharedType<Given>, Datasets> && ...)) explicit StackDataset(Given... datasets)
      : BasicStackDataset<detail::AsTuple, Datasets...>(detail::share(std::move(datasets), "StackDataset")...) {}
};

template <typename... Datasets>
StackDataset(Datasets...) -> StackDataset<detail::SharedType<Datasets>...>;

/// Stacks datasets to examples of type `Struct`: a plain struct with one field per dataset, in the same order. collate() joins up
/// to eight fields.
template <typename Struct, typename... Datasets>
auto stack_as(Datasets... datasets) {
  return BasicStackDataset<detail::AsStruct<Struct>, detail::SharedType<Datasets>...>(
      detail::share(std::move(datasets), "StackDataset")...);
}

}  // namespace cohort::data
