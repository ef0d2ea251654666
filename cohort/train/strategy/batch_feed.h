/// BatchFeed: the batches of a data::DataLoader without their type, for code that trains with batches of any type.
///
/// Thread-safety: as DataLoader.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/loader/data_loader.h"
#include "cohort/export.h"

namespace cohort::train {

class COHORT_API BatchFeed {
 public:
  virtual ~BatchFeed();

  virtual const data::DataLoaderOptions& options() const = 0;
  /// Replaces the loader with another one of the same data.
  virtual void set_options(data::DataLoaderOptions options) = 0;
  /// If absent, the size is not known before the last sample.
  virtual std::optional<int64_t> num_samples() const = 0;
  virtual std::optional<int64_t> num_batches() const = 0;
  /// The batches that are left in this epoch. If absent, their number is not known.
  virtual std::optional<int64_t> num_left() const = 0;

  /// Sets the number of the next epoch, for samplers and datasets that differ between epochs.
  virtual void set_epoch(int64_t epoch) = 0;
  virtual void start() = 0;
  /// Reads the next batch. Returns false at the end of the epoch. The batch before is released; drop() releases it earlier.
  virtual bool next() = 0;
  virtual void drop() = 0;
  /// Stops the epoch, which can be continued later. Workers stop reading.
  virtual void stop() = 0;
  /// Ends the epoch although some of its batches were not taken. The state is then that of the beginning of the next epoch.
  virtual void end_epoch() = 0;
  /// Returns the batch, a Loader::Batch. Requires that next() returned true.
  virtual void* batch() = 0;
  virtual void for_each_tensor(const std::function<void(at::Tensor&)>& fn) = 0;

  virtual data::StateDict state_dict() const = 0;
  virtual void load_state_dict(const data::StateDict& state) = 0;

  /// The first size of the first tensor, or 1 if it has no dimensions.
  int64_t batch_size();
  std::vector<at::Tensor> tensors();
};

/// A BatchFeed over a copy of a DataLoader, which shares its sampler.
template <class Loader>
class LoaderFeed final : public BatchFeed {
 public:
  using Batch = typename Loader::Batch;
  explicit LoaderFeed(const Loader& loader) : loader_(loader) {}

  const data::DataLoaderOptions& options() const override { return loader_.options(); }
  void set_options(data::DataLoaderOptions options) override {
    stop();
    loader_ = loader_.with_options(std::move(options));
  }
  std::optional<int64_t> num_samples() const override {
    using Dataset = std::remove_cvref_t<decltype(loader_.dataset())>;
    if constexpr (data::IterableDataset<Dataset> || data::StatefulDataset<Dataset>) {
      return std::nullopt;
    } else {
      return data::detail::dataset_size(loader_.dataset());
    }
  }
  std::optional<int64_t> num_batches() const override {
    return num_samples() ? std::optional(loader_.size()) : std::nullopt;
  }
  std::optional<int64_t> num_left() const override { return loader_.stats().num_left; }
  void set_epoch(int64_t epoch) override { loader_.set_epoch(epoch); }
  void start() override {
    stop();
    epoch_.emplace(loader_.start());
  }
  bool next() override {
    drop();
    batch_ = epoch_->next();
    return batch_.has_value();
  }
  void drop() override { batch_.reset(); }
  void stop() override {
    drop();
    epoch_.reset();
  }
  void end_epoch() override { loader_.end_epoch(); }
  void* batch() override { return &*batch_; }
  void for_each_tensor(const std::function<void(at::Tensor&)>& fn) override {
    data::detail::for_each_tensor(*batch_, fn);
  }
  data::StateDict state_dict() const override { return loader_.state_dict(); }
  void load_state_dict(const data::StateDict& state) override { loader_.load_state_dict(state); }

 private:
  Loader loader_;
  std::optional<data::Epoch<Batch>> epoch_;
  std::optional<Batch> batch_;
};

/// Settings that all loaders of a run share.
struct FeedSettings {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t seed = 0;
  c10::Device device = c10::kCPU;
  bool shards_samples = true;  ///< TrainerOptions::use_distributed_sampler
};

/// How samples are sharded: all ranks take the same number of batches, for training, or each sample comes once.
enum class SampleSharding { kEqually, kOnce };

/// Sets the device of the loader, and gives it a sampler that shards samples among the ranks, unless it has a sampler or its size
/// is not known.
COHORT_API void shard_samples(BatchFeed& feed, const FeedSettings& settings, SampleSharding sharding);
/// Whether the sampler knows which samples all ranks have read, so that any number of ranks can continue with the rest.
COHORT_API bool shards_remaining_samples(const BatchFeed& feed);

}  // namespace cohort::train
