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
/// An iterable dataset has `iterate()` instead, see read_batch.h; and LibTorch's own datasets are taken as they are, also those
/// made by `.map(torch::data::transforms::Stack<>())`, and those that have a state, such as ChunkDataset.
///
/// Thread-safety: the loader, its copies, which share its place in the epoch, and their iterators belong to one thread at a time.
/// The dataset and the collate function are called by all workers at once.
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
#include "cohort/data/loader/sampler.h"
#include "cohort/data/loader/tensors_of.h"

namespace cohort::data {

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
    batch_.reset();  // so that the next one may have its memory
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

  /// `collate` joins the samples of a batch: Batch(const std::vector<Example>&).
  /// Throws c10::ValueError for options that contradict each other, and for a null pointer.
  explicit DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options = {}, CollateFn collate = {})
      : dataset_(detail::not_null(std::move(dataset), "DataLoader")),
        collate_(std::move(collate)),
        options_(options),
        plan_(std::make_shared<detail::LoaderPlan>(std::move(options), facts_of(*dataset_))) {}
  explicit DataLoader(Dataset dataset, DataLoaderOptions options = {}, CollateFn collate = {})
      : DataLoader(std::make_shared<Dataset>(std::move(dataset)), std::move(options), std::move(collate)) {}

  /// Begins an epoch, without its first `first_batch` batches: for orders that the program makes again by itself, as set_epoch()
  /// of a DistributedSampler does. Otherwise see state_dict().
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
        using Reader = detail::IteratorReader<Dataset, CollateFn>;  // which a stateful dataset has, too
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

  /// Number of batches in an epoch. Throws c10::TypeError for iterable datasets.
  int64_t size() const { return plan_->num_batches(); }
  Dataset& dataset() const { return *dataset_; }
  /// What the loader was made with.
  const DataLoaderOptions& options() const { return options_; }
  /// Another loader of the same dataset, at the beginning of an epoch. Throws as the constructor.
  DataLoader with_options(DataLoaderOptions options) const {
    return DataLoader(dataset_, std::move(options), collate_);
  }

  /// The number of the epoch that begins next, for a DistributedSampler and the dataset. Without it a dataset that has
  /// set_epoch() is told the number that the program gave to the sampler; one with begin_epoch(epoch) otherwise the loader's
  /// count from 0, where the order changes or the dataset is iterable.
  void set_epoch(int64_t epoch) const { plan_->set_epoch(epoch); }

  /// The epoch that began last is over for state_dict(), though not all of its batches were taken: what goes on begins the next.
  void end_epoch() const { plan_->end_epoch(); }
  /// Where the epoch is that began last, in batches that have been taken, so that another loader, made alike, goes on from there.
  /// Take it between two batches.
  StateDict state_dict() const { return plan_->state_dict(); }
  /// The next epoch is the rest of the one whose state it is. Samples are not read again, but those of an iterable dataset.
  /// Throws c10::ValueError for a state that cannot be of a loader like this one.
  void load_state_dict(const StateDict& state) { plan_->load_state_dict(state); }

  /// Of the epoch that began last: how long the loop has waited, and what could not be read.
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
