/// Reads a batch from each kind of dataset: the part of a DataLoader that depends on the type of samples.
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

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/loader/batch_source.h"
#include "cohort/data/loader/collate.h"

namespace cohort::data {

/// As the third argument of a DataLoader: returns single samples unchanged, like batch_size=None in Python.
struct Unbatched {};

namespace detail {

/// Joins samples with collate(). A dataset with `get_batch(indices)` or `get_batch(indices, progress)` reads whole batches
/// instead; the latter reports the current sample.
struct DefaultCollate {
  template <typename Example>
  auto operator()(const std::vector<Example>& examples) const {
    return collate(examples);
  }
};

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename CollateFn, typename Example>
auto join(CollateFn& collate_examples, std::vector<Example> examples) {
  if constexpr (std::is_same_v<std::remove_const_t<CollateFn>, Unbatched>) {
    check_has_examples(!examples.empty());
    return std::move(examples.front());
  } else {
    return collate_examples(std::as_const(examples));
  }
}

/// Joins a vector of examples that one call has returned. Anything else is already a batch.
template <typename CollateFn, typename Given>
auto join_given(CollateFn& collate_examples, Given given) {
  if constexpr (IsVector<Given>::value) {
    return join(collate_examples, std::move(given));
  } else {
    static_assert(std::is_same_v<std::remove_const_t<CollateFn>, DefaultCollate>, "this dataset gives joined batches");
    return given;
  }
}

/// Calls read(index) for each sample. If it throws, leaves the sample out if `progress` skips unreadable samples. Throws
/// NothingRead if no sample is left.
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
auto read_one_by_one(Dataset& dataset, CollateFn& collate_examples, const std::vector<int64_t>& indices,
                     ReadProgress& progress) {
  std::vector<ExampleOf<Dataset>> examples;
  examples.reserve(indices.size());
  read_samples(indices, progress, [&](int64_t index) { examples.push_back(dataset.get(index)); });
  return join(collate_examples, std::move(examples));
}

/// Returns the samples that get_batch() can read.
template <typename Dataset>
std::vector<int64_t> find_readable(Dataset& dataset, const std::vector<int64_t>& indices, ReadProgress& progress) {
  std::vector<int64_t> readable;
  for (const int64_t index : indices) {
    progress.begin_sample(index);
    try {
      dataset.get_batch(std::vector<int64_t>{index});
      readable.push_back(index);
    } catch (const std::exception& error) {
      progress.skip(error);
    }
  }
  if (readable.empty()) throw NothingRead();
  progress.begin_collate();
  return readable;
}

template <typename Dataset, typename CollateFn>
auto read_batch(Dataset& dataset, CollateFn& collate_examples, const std::vector<int64_t>& indices,
                ReadProgress& progress) {
  constexpr bool kIsDefault = std::is_same_v<std::remove_const_t<CollateFn>, DefaultCollate>;
  constexpr bool kReadsWholeBatches = kIsDefault && requires { dataset.get_batch(indices); };
  progress.begin_collate();  // an error concerns the whole batch
  if constexpr (kIsDefault) check_has_examples(!indices.empty());
  if constexpr (kIsDefault && requires { dataset.get_batch(indices, progress); }) {
    return dataset.get_batch(indices, progress);
  } else if constexpr (WholeBatchDataset<Dataset>) {
    const std::vector<size_t> unsigned_indices(indices.begin(), indices.end());
    return join_given(collate_examples, dataset.get_batch(unsigned_indices));
  } else if constexpr (kReadsWholeBatches) {
    try {
      return dataset.get_batch(indices);
    } catch (const std::exception&) {
      if (!progress.skips()) throw;
    }
    return dataset.get_batch(find_readable(dataset, indices, progress));
  } else {
    return read_one_by_one(dataset, collate_examples, indices, progress);
  }
}

/// Reads up to `batch_size` samples from an iterator. At its end there may be fewer, which `drops_last` leaves out.
template <typename Dataset, typename CollateFn>
class IteratorReader;

template <IterableDataset Dataset, typename CollateFn>
class IteratorReader<Dataset, CollateFn> {
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

template <StatefulDataset Dataset, typename CollateFn>
class IteratorReader<Dataset, CollateFn> {
  using Given = std::remove_cvref_t<decltype(std::declval<Dataset&>().get_batch(size_t{1}).value())>;

 public:
  using Batch = decltype(join_given(std::declval<CollateFn&>(), std::declval<Given>()));

  IteratorReader(Dataset& dataset, const CollateFn& collate_examples, int64_t batch_size, bool drops_last)
      : dataset_(dataset), collate_(collate_examples), batch_size_(batch_size), drops_last_(drops_last) {}

  std::optional<Batch> next(ReadProgress& progress) {
    progress.begin_sample(-1);
    auto given = dataset_.get_batch(static_cast<size_t>(batch_size_));
    if (!given) return std::nullopt;
    if constexpr (IsVector<Given>::value) {
      if (given->empty() || (drops_last_ && static_cast<int64_t>(given->size()) < batch_size_)) return std::nullopt;
    }
    return join_given(collate_, std::move(*given));
  }

 private:
  Dataset& dataset_;
  CollateFn collate_;
  const int64_t batch_size_;
  const bool drops_last_;
};

}  // namespace detail
}  // namespace cohort::data
