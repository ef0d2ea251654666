/// BatchFeed: the batches of a data::DataLoader without their type, for what trains whatever they are.
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
  /// Another loader of the same data takes the place of this one.
  virtual void set_options(data::DataLoaderOptions options) = 0;
  /// Nothing where nobody knows before the last one.
  virtual std::optional<int64_t> num_samples() const = 0;
  virtual std::optional<int64_t> num_batches() const = 0;
  /// Batches that are still to come in this epoch; nothing where nobody knows.
  virtual std::optional<int64_t> num_left() const = 0;

  /// The number of the epoch that begins next, for samplers and datasets whose epochs differ.
  virtual void set_epoch(int64_t epoch) = 0;
  virtual void start() = 0;
  /// False: there are no more. The batch before is gone then; drop() lets go of it early.
  virtual bool next() = 0;
  virtual void drop() = 0;
  /// Stops the epoch, which may go on later; workers stop reading.
  virtual void stop() = 0;
  /// The epoch is over, though not all of its batches were taken: a state from now on is that of the next one's beginning.
  virtual void end_epoch() = 0;
  /// The batch: a Loader::Batch. Requires that next() was true.
  virtual void* batch() = 0;
  virtual void for_each_tensor(const std::function<void(at::Tensor&)>& fn) = 0;

  virtual data::StateDict state_dict() const = 0;
  virtual void load_state_dict(const data::StateDict& state) = 0;

  /// The first tensor's first size; 1 where it has none.
  int64_t batch_size();
  std::vector<at::Tensor> tensors();
};

/// Of a DataLoader, which is copied; a copy shares the sampler.
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

/// What is the same for the loaders of a run.
struct FeedSettings {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t seed = 0;
  c10::Device device = c10::kCPU;
  bool shares = true;  ///< TrainerOptions::use_distributed_sampler
};

/// Whether all ranks take equally many batches, for training, or each sample comes once.
enum class Share { kEqually, kOnce };

/// Gives the loader a sampler that shares samples out among the ranks, unless it has one or no size, and the device.
COHORT_API void share_out(BatchFeed& feed, const FeedSettings& settings, Share share);
/// True where the sampler knows what all ranks have been given, so that any number of them goes on with the rest.
COHORT_API bool shares_out_rests(const BatchFeed& feed);

}  // namespace cohort::train
