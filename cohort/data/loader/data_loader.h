/// DataLoader turns a dataset into batches, as torch.utils.data.DataLoader does:
///
///     DataLoader loader(dataset, {.batch_size = 32, .shuffle = true, .num_workers = 2});
///     for (int epoch = 0; epoch < 3; ++epoch) {
///       for (auto& [input, target] : loader) ...
///     }
///
/// A dataset is any type with `size()` and `get(int64_t index)`; with workers, get() is called from several threads at
/// once. Order, defaults and error texts are PyTorch's. Workers are threads, not processes: nothing is pickled, the
/// dataset is shared, and an error in a worker comes out of the loop as the same LibTorch type, naming the example and
/// the worker. With num_workers = 0 the examples are read in the caller and errors pass through unchanged.
///
/// Thread-safety: the loader and its iterators belong to one thread at a time.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/loader/batch_stream.h"
#include "cohort/data/loader/collate.h"
#include "cohort/data/loader/sampler.h"
#include "cohort/export.h"

namespace cohort::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  /// A new random order each epoch. Not together with `sampler`.
  bool shuffle = false;
  /// The order of examples, such as a DistributedSampler.
  std::shared_ptr<Sampler> sampler = {};
  /// Forms whole batches. Not together with batch_size, shuffle, sampler and drop_last.
  std::shared_ptr<BatchSampler> batch_sampler = {};
  /// Threads that read ahead. 0: read in the caller.
  int num_workers = 0;
  /// Batches each worker reads ahead; 2 unless given. Only with workers.
  std::optional<int> prefetch_factor = {};
  /// Drop the last batch if it is not full.
  bool drop_last = false;
  /// How long to wait for a batch of a worker; 0: for ever.
  std::chrono::milliseconds timeout{0};
  /// False: give batches as they become ready, which need not be the sampler's order.
  bool in_order = true;
  /// Seeds shuffling and workers. Default: LibTorch's default CPU generator, which torch::manual_seed sets.
  std::optional<at::Generator> generator = {};
  /// Called in each worker thread before its first batch of an epoch.
  std::function<void(int worker)> worker_init_fn = {};
};

namespace detail {

/// The checked options and the order of batches: all of a loader that does not depend on the example's type.
class COHORT_API LoaderPlan {
 public:
  /// Throws c10::ValueError for options that contradict each other.
  LoaderPlan(DataLoaderOptions options, int64_t dataset_size);
  /// One epoch, without its first `first_batch` batches (they are not read).
  std::unique_ptr<BatchStream> start(ReadBatch read, int64_t first_batch) const;
  int64_t num_batches() const { return batch_sampler_->size(); }

 private:
  DataLoaderOptions options_;
  std::shared_ptr<BatchSampler> batch_sampler_;
};

template <typename Dataset>
int64_t dataset_size(const Dataset& dataset) {
  if constexpr (requires { dataset.size().value(); }) {
    return static_cast<int64_t>(dataset.size().value());  // LibTorch's own datasets give an optional
  } else {
    return static_cast<int64_t>(dataset.size());
  }
}

template <typename Dataset>
using ExampleOf = std::remove_cvref_t<decltype(std::declval<Dataset&>().get(int64_t{0}))>;

/// Joins examples by collate(). A dataset with `get_batch(indices)` reads whole batches at once instead.
struct DefaultCollate {
  template <typename Example>
  auto operator()(const std::vector<Example>& examples) const {
    return collate(examples);
  }
};

template <typename Dataset, typename CollateFn>
auto read_batch(Dataset& dataset, CollateFn& collate_examples, const std::vector<int64_t>& indices,
                ReadProgress& progress) {
  constexpr bool kReadsWholeBatches = std::is_same_v<std::remove_const_t<CollateFn>, DefaultCollate> && requires {
    dataset.get_batch(indices);
  };
  if constexpr (kReadsWholeBatches) {
    progress.begin_collate();
    return dataset.get_batch(indices);
  } else {
    std::vector<ExampleOf<Dataset>> examples;
    examples.reserve(indices.size());
    for (const int64_t index : indices) {
      progress.begin_sample(index);
      examples.push_back(dataset.get(index));
    }
    progress.begin_collate();
    return collate_examples(std::as_const(examples));
  }
}

}  // namespace detail

template <typename Dataset>
concept MapDataset = requires(Dataset& dataset, int64_t index) {
  dataset.get(index);
  detail::dataset_size(dataset);
};

/// The batches of one epoch, one after the other.
template <typename Batch>
class Epoch {
 public:
  explicit Epoch(std::unique_ptr<detail::BatchStream> stream) : stream_(std::move(stream)) {}
  /// Returns: the next batch, or nothing at the end. Blocks until it is read. Throws what reading it threw.
  std::optional<Batch> next() {
    const std::shared_ptr<void> batch = stream_->next();
    if (!batch) return std::nullopt;
    return std::move(*static_cast<Batch*>(batch.get()));
  }

 private:
  std::unique_ptr<detail::BatchStream> stream_;
};

/// Lets `for (auto& batch : loader)` walk an epoch. Copies share one epoch.
template <typename Batch>
class BatchIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  explicit BatchIterator(Epoch<Batch> epoch) : epoch_(std::make_shared<Epoch<Batch>>(std::move(epoch))) { ++*this; }
  Batch& operator*() const { return *batch_; }
  Batch* operator->() const { return batch_.get(); }
  BatchIterator& operator++() {
    std::optional<Batch> batch = epoch_->next();
    batch_ = batch ? std::make_shared<Batch>(std::move(*batch)) : nullptr;
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const BatchIterator& iterator, std::default_sentinel_t) { return !iterator.batch_; }

 private:
  std::shared_ptr<Epoch<Batch>> epoch_;
  std::shared_ptr<Batch> batch_;
};

template <MapDataset Dataset, typename CollateFn = detail::DefaultCollate>
class DataLoader {
 public:
  using Example = detail::ExampleOf<Dataset>;
  using Batch = std::remove_cvref_t<decltype(detail::read_batch(
      std::declval<Dataset&>(), std::declval<const CollateFn&>(), std::declval<const std::vector<int64_t>&>(),
      std::declval<detail::ReadProgress&>()))>;

  /// `collate` joins the examples of a batch: Batch(const std::vector<Example>&).
  /// Throws c10::ValueError for options that contradict each other.
  explicit DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options = {}, CollateFn collate = {})
      : dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        plan_(std::move(options), detail::dataset_size(*dataset_)) {}
  explicit DataLoader(Dataset dataset, DataLoaderOptions options = {}, CollateFn collate = {})
      : DataLoader(std::make_shared<Dataset>(std::move(dataset)), std::move(options), std::move(collate)) {}

  /// Begins an epoch, without its first `first_batch` batches: how a resumed run goes on in the middle of an epoch.
  /// The order must be that of the first run: with a DistributedSampler it is, after set_epoch; `shuffle` needs a
  /// generator in the state it had when the epoch began.
  Epoch<Batch> start(int64_t first_batch = 0) const {
    auto read = [dataset = dataset_, collate = collate_](const std::vector<int64_t>& indices,
                                                         detail::ReadProgress& progress) {
      return std::static_pointer_cast<void>(
          std::make_shared<Batch>(detail::read_batch(*dataset, collate, indices, progress)));
    };
    return Epoch<Batch>(plan_.start(std::move(read), first_batch));
  }

  BatchIterator<Batch> begin() const { return BatchIterator<Batch>(start()); }
  std::default_sentinel_t end() const { return {}; }

  /// Number of batches in an epoch.
  int64_t size() const { return plan_.num_batches(); }
  Dataset& dataset() const { return *dataset_; }

 private:
  std::shared_ptr<Dataset> dataset_;
  CollateFn collate_;
  detail::LoaderPlan plan_;
};

}  // namespace cohort::data
