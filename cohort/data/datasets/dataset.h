/// The kinds of datasets that a DataLoader reads. A dataset need not derive from anything.
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

/// Throws c10::ValueError for a null pointer. `who` needs the dataset.
template <typename T>
std::shared_ptr<T> not_null(std::shared_ptr<T> dataset, const char* who) {
  TORCH_CHECK_VALUE(dataset != nullptr, "[cohort] ", who, " needs a dataset, but got a null pointer");
  return dataset;
}

template <typename Dataset>
int64_t dataset_size(const Dataset& dataset) {
  if constexpr (requires { dataset.size().value(); }) {
    return static_cast<int64_t>(dataset.size().value());  // LibTorch's own datasets give an optional
  } else {
    return static_cast<int64_t>(dataset.size());
  }
}

}  // namespace detail

/// size() and get(index), which workers call at once.
template <typename Dataset>
concept MapDataset = requires(Dataset& dataset, int64_t index) {
  dataset.get(index);
  detail::dataset_size(dataset);
};

/// iterate() gives an iterator, whose next() gives a sample in an optional, and nothing at the end. Each worker iterates on its
/// own: without worker_info() or sharded() (iterable.h) every sample comes from each of them, as in Python.
template <typename Dataset>
concept IterableDataset = requires(Dataset& dataset) {
  dataset.iterate().next().value();
};

/// LibTorch's own datasets that give whole batches only, such as those made by `.map(torch::data::transforms::Stack<>())`.
template <typename Dataset>
concept WholeBatchDataset = !MapDataset<Dataset> && requires(Dataset & dataset, const std::vector<size_t>& indices) {
  dataset.get_batch(indices);
  detail::dataset_size(dataset);
};

/// LibTorch's own datasets with a state, such as ChunkDataset: get_batch(size) gives batches in an optional until reset(), which
/// begins each epoch. Workers share them, so get_batch() must be safe to call at once, unless there is one worker at most.
template <typename Dataset>
concept StatefulDataset = requires(Dataset& dataset) {
  dataset.reset();
  dataset.get_batch(size_t{1}).value();
};

namespace detail {

/// Who has chosen the number of an epoch: a loader that counts from 0, or the program by the set_epoch() of its sampler or of the
/// loader.
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

/// Tells the dataset, or those inside of it, the number of the epoch that begins: by begin_epoch(); or by set_epoch(), but only
/// a number that the program has chosen, as it may call set_epoch() itself. Does nothing where the dataset has neither.
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
