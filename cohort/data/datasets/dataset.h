/// The kinds of datasets that a DataLoader reads. Datasets need no base class.
#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::data {

namespace detail {

/// Throws c10::ValueError for a null pointer. `who`: the class that needs the dataset.
template <typename T>
std::shared_ptr<T> not_null(std::shared_ptr<T> dataset, const char* who) {
  TORCH_CHECK_VALUE(dataset != nullptr, "[cohort] ", who, " needs a dataset, but got a null pointer");
  return dataset;
}

template <typename Dataset>
int64_t dataset_size(const Dataset& dataset) {
  if constexpr (requires { dataset.size().value(); }) {
    return static_cast<int64_t>(dataset.size().value());  // LibTorch's own datasets return an optional
  } else {
    return static_cast<int64_t>(dataset.size());
  }
}

}  // namespace detail

/// A dataset with size() and get(index). Workers call get() concurrently.
template <typename Dataset>
concept MapDataset = requires(Dataset& dataset, int64_t index) {
  dataset.get(index);
  detail::dataset_size(dataset);
};

/// A dataset with iterate(), whose result has a next() that returns an optional sample, empty at the end. Each worker iterates on
/// its own: without worker_info() or sharded() (iterable.h) each worker returns every sample, as in Python.
template <typename Dataset>
concept IterableDataset = requires(Dataset& dataset) {
  dataset.iterate().next().value();
};

/// LibTorch's own datasets that return only whole batches, such as those made by `.map(torch::data::transforms::Stack<>())`.
template <typename Dataset>
concept WholeBatchDataset = !MapDataset<Dataset> && requires(Dataset & dataset, const std::vector<size_t>& indices) {
  dataset.get_batch(indices);
  detail::dataset_size(dataset);
};

/// LibTorch's own datasets with a state, such as ChunkDataset: get_batch(size) returns optional batches until the epoch ends, and
/// reset() begins each epoch. Workers share them, so get_batch() must be thread-safe if there are several workers.
template <typename Dataset>
concept StatefulDataset = requires(Dataset& dataset) {
  dataset.reset();
  dataset.get_batch(size_t{1}).value();
};

namespace detail {

/// How the number of an epoch was chosen: by a loader that counts from 0, or by the program with set_epoch() of its sampler or of
/// the loader.
enum class EpochBy { kCount, kSampler, kLoader };

template <typename Dataset>
concept PassesEpochsOn = requires(Dataset& dataset, int64_t epoch, EpochBy who) {
  dataset.begin_epoch(epoch, who);
};
template <typename Dataset>
concept HasBeginEpoch = requires(Dataset& dataset, int64_t epoch) {
  dataset.begin_epoch(epoch);
};
template <typename Dataset>
concept HasSetEpoch = requires(Dataset& dataset, int64_t epoch) {
  dataset.set_epoch(epoch);
};
template <typename Dataset>
concept HasEpochs = HasBeginEpoch<Dataset> || HasSetEpoch<Dataset> || PassesEpochsOn<Dataset>;

/// Tells the dataset, or the datasets inside it, the number of the epoch that begins. Calls begin_epoch(), or set_epoch(), but
/// the latter only with a number that the program has chosen, as the program may call set_epoch() itself. Does nothing if the
/// dataset has neither.
template <typename Dataset>
void tell_epoch(Dataset& dataset, int64_t epoch, EpochBy who) {
  if constexpr (PassesEpochsOn<Dataset>) {
    dataset.begin_epoch(epoch, who);
  } else if constexpr (HasBeginEpoch<Dataset>) {
    dataset.begin_epoch(epoch);
  } else if constexpr (HasSetEpoch<Dataset>) {
    if (who != EpochBy::kCount) dataset.set_epoch(epoch);
  }
}

template <MapDataset Dataset>
using ExampleOf = std::remove_cvref_t<decltype(std::declval<Dataset&>().get(int64_t{0}))>;

template <IterableDataset Dataset>
using IteratedOf = std::remove_cvref_t<decltype(std::declval<Dataset&>().iterate().next().value())>;

}  // namespace detail
}  // namespace cohort::data
