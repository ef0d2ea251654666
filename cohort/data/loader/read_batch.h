/// The kinds of datasets that a DataLoader reads, and how each of them gives a batch. All that depends on the type of samples.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/loader/batch_source.h"
#include "cohort/data/loader/collate.h"

namespace cohort::data {

/// As the third argument of a DataLoader: samples come one by one and as they are, like those of batch_size=None in Python.
struct Unbatched {};

namespace detail {

template <typename Dataset>
int64_t dataset_size(const Dataset& dataset) {
  if constexpr (requires { dataset.size().value(); }) {
    return static_cast<int64_t>(dataset.size().value());  // LibTorch's own datasets give an optional
  } else {
    return static_cast<int64_t>(dataset.size());
  }
}

/// Joins samples by collate(). A dataset with `get_batch(indices)` or `get_batch(indices, progress)` reads whole batches at once
/// instead; the latter says at which sample it is.
struct DefaultCollate {
  template <typename Example>
  auto operator()(const std::vector<Example>& examples) const {
    return collate(examples);
  }
};

}  // namespace detail

/// size() and get(index), which workers call at once.
template <typename Dataset>
concept MapDataset = requires(Dataset& dataset, int64_t index) {
  dataset.get(index);
  detail::dataset_size(dataset);
};

/// iterate() gives an iterator, whose next() gives a sample in an optional, and nothing at the end. Each worker iterates on its own:
/// without worker_info() or sharded() (iterable.h) every sample comes from each of them, as in Python.
template <typename Dataset>
concept IterableDataset = requires(Dataset& dataset) {
  dataset.iterate().next().value();
};

namespace detail {

template <MapDataset Dataset>
using ExampleOf = std::remove_cvref_t<decltype(std::declval<Dataset&>().get(int64_t{0}))>;

template <IterableDataset Dataset>
using IteratedOf = std::remove_cvref_t<decltype(std::declval<Dataset&>().iterate().next().value())>;

template <typename CollateFn, typename Example>
auto join(CollateFn& collate_examples, std::vector<Example> examples) {
  if constexpr (std::is_same_v<std::remove_const_t<CollateFn>, Unbatched>) {
    return std::move(examples.front());
  } else {
    return collate_examples(std::as_const(examples));
  }
}

/// Calls read(index) for each sample. Those that it throws at are left out where `progress` skips them. Throws NothingRead if no
/// sample is left.
template <typename Read>
void read_samples(const std::vector<int64_t>& indices, ReadProgress& progress, Read read) {
  size_t num_skipped = 0;
  for (const int64_t index : indices) {
    progress.begin_sample(index);
    if (!progress.skips()) {
      read(index);
      continue;
    }
    try {
      read(index);
    } catch (const std::exception& error) {
      progress.skip(error);
      ++num_skipped;
    }
  }
  if (num_skipped > 0 && num_skipped == indices.size()) throw NothingRead();
  progress.begin_collate();
}

template <typename Dataset, typename CollateFn>
auto read_batch(Dataset& dataset, CollateFn& collate_examples, const std::vector<int64_t>& indices,
                ReadProgress& progress) {
  constexpr bool kIsDefault = std::is_same_v<std::remove_const_t<CollateFn>, DefaultCollate>;
  if constexpr (kIsDefault && requires { dataset.get_batch(indices, progress); }) {
    return dataset.get_batch(indices, progress);
  } else if constexpr (kIsDefault && requires { dataset.get_batch(indices); }) {
    progress.begin_collate();  // the whole batch is an error, or not
    return dataset.get_batch(indices);
  } else {
    std::vector<ExampleOf<Dataset>> examples;
    examples.reserve(indices.size());
    read_samples(indices, progress, [&](int64_t index) { examples.push_back(dataset.get(index)); });
    return join(collate_examples, std::move(examples));
  }
}

/// Up to `batch_size` samples of an iterator; fewer only at its end, when `drops_last` leaves them out.
template <typename Dataset, typename CollateFn>
class IteratorReader {
 public:
  using Batch = decltype(join(std::declval<CollateFn&>(), std::declval<std::vector<IteratedOf<Dataset>>>()));

  IteratorReader(Dataset& dataset, const CollateFn& collate_examples, int64_t batch_size, bool drops_last)
      : iterator_(dataset.iterate()), collate_(collate_examples), batch_size_(batch_size), drops_last_(drops_last) {}

  std::optional<Batch> next(ReadProgress& progress) {
    std::vector<IteratedOf<Dataset>> examples;
    while (!has_ended_ && static_cast<int64_t>(examples.size()) < batch_size_) {
      progress.begin_sample(num_read_);
      auto example = iterator_.next();
      has_ended_ = !example;
      if (example) examples.push_back(std::move(*example));
      ++num_read_;
    }
    const bool is_full = static_cast<int64_t>(examples.size()) == batch_size_;
    if (examples.empty() || (!is_full && drops_last_)) return std::nullopt;
    progress.begin_collate();
    return join(collate_, std::move(examples));
  }

 private:
  decltype(std::declval<Dataset&>().iterate()) iterator_;
  CollateFn collate_;
  const int64_t batch_size_;
  const bool drops_last_;
  int64_t num_read_ = 0;
  bool has_ended_ = false;
};

}  // namespace detail
}  // namespace cohort::data
