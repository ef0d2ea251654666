/// ChainDataset: iterable datasets one after the other, as torch.utils.data.ChainDataset. Iterates over each dataset after the
/// one before has ended.
///
///     ChainDataset parts(std::vector{part0, part1});   // of one type
///     ChainDataset all(logs, records);                 // of several types whose examples are of one type
///
/// Thread-safety: const; as the datasets inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/datasets/share.h"

namespace cohort::data {

namespace detail {

template <typename Example>
using NextExample = std::function<std::optional<Example>()>;

template <typename Example>
class ChainIterator {
 public:
  explicit ChainIterator(std::vector<std::function<NextExample<Example>()>> begins) : begins_(std::move(begins)) {}
  std::optional<Example> next() {
    while (place_ < begins_.size()) {
      if (!next_) next_ = begins_[place_]();
      if (auto example = next_()) return example;
      next_ = nullptr;
      ++place_;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::function<NextExample<Example>()>> begins_;
  size_t place_ = 0;
  NextExample<Example> next_;
};

}  // namespace detail

template <typename Example>
class ChainDataset {
 public:
  /// Takes datasets, or shared pointers to them. Without datasets it is empty.
  template <typename Dataset>
  explicit ChainDataset(std::vector<Dataset> datasets) {
    for (Dataset& dataset : datasets) add(std::move(dataset));
  }
  template <typename... Datasets>
  requires(IterableDataset<detail::SharedType<Datasets>>&&...) explicit ChainDataset(Datasets... datasets) {
    (add(std::move(datasets)), ...);
  }

  auto iterate() const { return detail::ChainIterator<Example>(begins_); }
  /// See detail::tell_epoch().
  void begin_epoch(int64_t epoch, detail::EpochBy who) const {
    for (const auto& tell : tell_epoch_) tell(epoch, who);
  }

 private:
  template <typename Dataset>
  void add(Dataset dataset) {
    auto shared = detail::share(std::move(dataset), "ChainDataset");
    tell_epoch_.push_back([shared](int64_t epoch, detail::EpochBy who) { detail::tell_epoch(*shared, epoch, who); });
    begins_.push_back([shared]() -> detail::NextExample<Example> {
      using Iterator = decltype(shared->iterate());
      auto iterator = std::make_shared<Iterator>(shared->iterate());
      return [shared, iterator]() -> std::optional<Example> { return iterator->next(); };
    });
  }

  std::vector<std::function<detail::NextExample<Example>()>> begins_;
  std::vector<std::function<void(int64_t, detail::EpochBy)>> tell_epoch_;
};

template <typename Dataset>
ChainDataset(std::vector<Dataset>) -> ChainDataset<detail::IteratedOf<detail::SharedType<Dataset>>>;
template <typename First, typename... Datasets>
requires IterableDataset<detail::SharedType<First>> ChainDataset(First, Datasets...)
->ChainDataset<detail::IteratedOf<detail::SharedType<First>>>;

}  // namespace cohort::data
