/// DataLoader: turns a dataset into batches, as torch.utils.data.DataLoader:
///
///     DataLoader loader(dataset, {.batch_size = 32, .shuffle = true, .num_workers = 2});
///     for (int epoch = 0; epoch < 3; ++epoch) {
///       for (auto& [input, target] : loader) ...
///     }
///
/// A dataset is any type with `size()` and `get(int64_t index)`; workers call get() concurrently. Order, defaults and error texts
/// are PyTorch's. Workers are threads, not processes: nothing is pickled, they share the dataset, and the loop rethrows an error
/// of a worker as the same LibTorch type, naming the example and the worker. With num_workers = 0 the caller reads the examples,
/// and errors pass through unchanged.
///
/// An iterable dataset has `iterate()` instead, see read_batch.h. LibTorch's own datasets work unchanged, also those made by
/// `.map(torch::data::transforms::Stack<>())`, and those with a state, such as ChunkDataset.
///
/// Thread-safety: the loader, its copies, which share its position in the epoch, and their iterators belong to one thread at a
/// time. All workers call the dataset and the collate function concurrently.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/loader/loader_plan.h"
#include "cohort/data/loader/read_batch.h"
#include "cohort/data/loader/tensors_of.h"
#include "cohort/data/samplers/sampler.h"

namespace cohort::data {

/// The batches of an epoch, one after the other.
template <typename Batch>
class Epoch {
 public:
  explicit Epoch(std::unique_ptr<detail::BatchStream> stream) : stream_(std::move(stream)) {}
  /// Returns: the next batch, or an empty optional at the end. Blocks until it is read. Throws what reading it threw.
  std::optional<Batch> next() {
    const std::shared_ptr<void> batch = stream_->next();
    if (!batch) return std::nullopt;
    return std::move(*static_cast<Batch*>(batch.get()));
  }

 private:
  std::unique_ptr<detail::BatchStream> stream_;
};

/// Iterates over an epoch in `for (auto& batch : loader)`. Copies share one epoch.
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
    batch_.reset();  // so that the next batch can reuse its memory
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

namespace detail {

template <typename Dataset, typename CollateFn>
struct BatchOf;
template <typename Dataset, typename CollateFn>
requires(MapDataset<Dataset> || WholeBatchDataset<Dataset>) struct BatchOf<Dataset, CollateFn> {
  using Type = std::remove_cvref_t<decltype(read_batch(std::declval<Dataset&>(), std::declval<const CollateFn&>(),
                                                       std::declval<const std::vector<int64_t>&>(),
                                                       std::declval<ReadProgress&>()))>;
};
template <typename Dataset, typename CollateFn>
requires(!MapDataset<Dataset> &&
         (IterableDataset<Dataset> || StatefulDataset<Dataset>)) struct BatchOf<Dataset, CollateFn> {
  using Type = std::remove_cvref_t<typename IteratorReader<Dataset, CollateFn>::Batch>;
};

}  // namespace detail

template <typename Dataset, typename CollateFn = detail::DefaultCollate>
class DataLoader {
  static constexpr bool kIsMap = MapDataset<Dataset> || WholeBatchDataset<Dataset>;

 public:
  using Batch = typename detail::BatchOf<Dataset, CollateFn>::Type;

  /// `collate` joins the samples of a batch: Batch(const std::vector<Example>&). Throws c10::ValueError for options that
  /// contradict each other, and for a null pointer.
  explicit DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options = {}, CollateFn collate = {})
      : dataset_(detail::not_null(std::move(dataset), "DataLoader")),
        collate_(std::move(collate)),
        options_(options),
        plan_(std::make_shared<detail::LoaderPlan>(std::move(options), facts_of(*dataset_))) {}
  explicit DataLoader(Dataset dataset, DataLoaderOptions options = {}, CollateFn collate = {})
      : DataLoader(std::make_shared<Dataset>(std::move(dataset)), std::move(options), std::move(collate)) {}

  /// Begins an epoch without its first `first_batch` batches, for a program that can repeat the order itself, as with set_epoch()
  /// of a DistributedSampler. In other cases use state_dict().
  Epoch<Batch> start(int64_t first_batch = 0) const {
    plan_->tell_epoch();
    const bool pins = plan_->pins_memory();
    if constexpr (kIsMap) {
      auto read = [dataset = dataset_, collate = collate_, memory = plan_->memory(), pins](
                      const std::vector<int64_t>& indices, detail::ReadProgress& progress) {
        const detail::BatchMemory::Scope scope(memory);
        return erase(detail::read_batch(*dataset, collate, indices, progress), pins);
      };
      return Epoch<Batch>(plan_->start(detail::ReadBatch(std::move(read)), first_batch));
    } else {
      if constexpr (StatefulDataset<Dataset>) dataset_->reset();
      auto begin = [dataset = dataset_, collate = collate_, plan = plan_, pins]() -> detail::NextBatch {
        using Reader = detail::IteratorReader<Dataset, CollateFn>;  // also for stateful datasets
        auto reader = std::make_shared<Reader>(*dataset, collate, plan->batch_size(), plan->drops_last());
        return
            [dataset, reader, memory = plan->memory(), pins](detail::ReadProgress& progress) -> std::shared_ptr<void> {
              const detail::BatchMemory::Scope scope(memory);
              auto batch = reader->next(progress);
              return batch ? erase(std::move(*batch), pins) : nullptr;
            };
      };
      return Epoch<Batch>(plan_->start(std::function<detail::NextBatch()>(std::move(begin)), first_batch));
    }
  }

  BatchIterator<Batch> begin() const { return BatchIterator<Batch>(start()); }
  std::default_sentinel_t end() const { return {}; }

  /// The number of batches in an epoch. Throws c10::TypeError for iterable datasets.
  int64_t size() const { return plan_->num_batches(); }
  Dataset& dataset() const { return *dataset_; }
  /// The options that the loader was made with.
  const DataLoaderOptions& options() const { return options_; }
  /// Returns another loader of the same dataset, at the beginning of an epoch. Throws like the constructor.
  DataLoader with_options(DataLoaderOptions options) const {
    return DataLoader(dataset_, std::move(options), collate_);
  }

  /// Sets the number of the epoch that begins next, for a DistributedSampler and the dataset. Without this call, a dataset with
  /// set_epoch() gets the number that the program gave to the sampler. A dataset with begin_epoch(epoch) gets this number or else
  /// the loader's count from 0, if the order changes or the dataset is iterable.
  void set_epoch(int64_t epoch) const { plan_->set_epoch(epoch); }

  /// Ends the current epoch for state_dict(), although not all of its batches were taken: a resumed run begins the next epoch.
  void end_epoch() const { plan_->end_epoch(); }
  /// Returns the position in the current epoch, in batches that have been taken, so that another loader with the same options can
  /// resume there. Call it between two batches.
  StateDict state_dict() const { return plan_->state_dict(); }
  /// Makes the next epoch the rest of the saved one. Does not read samples again, except those of an iterable dataset. Throws
  /// c10::ValueError for a state that cannot belong to a loader like this one.
  void load_state_dict(const StateDict& state) { plan_->load_state_dict(state); }

  /// How long the loop has waited in the current epoch, and how many samples could not be read.
  EpochStats stats() const { return plan_->stats(); }

 private:
  static detail::DatasetFacts facts_of(Dataset& dataset) {
    using Plain = std::remove_const_t<Dataset>;
    detail::DatasetFacts facts{.is_batched = !std::is_same_v<CollateFn, Unbatched>,
                               .address = {const_cast<Plain*>(&dataset), &typeid(Plain)},
                               .visit_batch = [](void* batch, const std::function<void(at::Tensor&)>& fn) {
                                 detail::for_each_tensor(*static_cast<Batch*>(batch), fn);
                               }};
    if constexpr (kIsMap) facts.size = detail::dataset_size(dataset);
    if constexpr (detail::HasEpochs<Dataset>) {
      facts.begin_epoch = [&dataset](int64_t epoch, detail::EpochBy who) { detail::tell_epoch(dataset, epoch, who); };
    }
    return facts;
  }
  static std::shared_ptr<void> erase(Batch batch, bool pins) {
    if (pins) detail::for_each_tensor(batch, detail::pin);
    return std::make_shared<Batch>(std::move(batch));
  }

  std::shared_ptr<Dataset> dataset_;
  CollateFn collate_;
  DataLoaderOptions options_;
  std::shared_ptr<detail::LoaderPlan> plan_;
};

}  // namespace cohort::data
