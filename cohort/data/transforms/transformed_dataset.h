/// TransformedDataset: a dataset whose examples pass through a transform when they are read.
///
///     const TransformedDataset dataset(images, Compose({RandomCrop(32, {.padding = {4}}), ToTensor()}), {.seed = 7});
///     const DataLoader loader(dataset, {.batch_size = 32, .num_workers = 2});
///     for (int epoch = 0; epoch < 3; ++epoch) {
///       dataset.set_epoch(epoch);   // other crops each epoch, the same whatever the number of workers and ranks
///       for (auto& [image, label] : loader) ...
///     }
///
/// An example that is a pair or a tuple has its image first, and the rest of it stays as it is. Any other example is given to
/// the transform whole; so is a pair to a function that takes one.
///
/// Thread-safety: get() is const and any number of threads may call it, if the dataset inside allows that. Copies share the
/// epoch, so that the one inside a loader knows it; set_epoch belongs between epochs, for a worker may be reading ahead.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cohort/data/transforms/compose.h"
#include "cohort/data/transforms/sample_random.h"

namespace cohort::data {

struct TransformedDatasetOptions {
  /// Other seeds give other crops, flips and so on. The same on every rank, or the number of ranks shows in the examples.
  uint64_t seed = 0;
};

template <typename Dataset, typename Fn = Compose>
class TransformedDataset {
 public:
  explicit TransformedDataset(std::shared_ptr<Dataset> dataset, Fn transform, TransformedDatasetOptions options = {})
      : dataset_(std::move(dataset)), transform_(std::move(transform)), options_(options) {}
  explicit TransformedDataset(Dataset dataset, Fn transform, TransformedDatasetOptions options = {})
      : TransformedDataset(std::make_shared<Dataset>(std::move(dataset)), std::move(transform), options) {}

  /// Throws what the dataset and the transform throw.
  auto get(int64_t index) const {
    auto example = dataset_->get(index);
    SampleRandom random(options_.seed, epoch(), index);
    return apply(std::move(example), random);
  }
  int64_t size() const {
    if constexpr (requires { dataset_->size().value(); }) {
      return static_cast<int64_t>(dataset_->size().value());  // LibTorch's own datasets give an optional
    } else {
      return static_cast<int64_t>(dataset_->size());
    }
  }

  /// Which random numbers the examples get from now on; an epoch in [0, 2^32).
  void set_epoch(int64_t epoch) const { epoch_->store(epoch); }
  int64_t epoch() const { return epoch_->load(); }
  Dataset& dataset() const { return *dataset_; }

 private:
  template <typename Example>
  auto apply(Example example, SampleRandom& random) const {
    if constexpr (std::is_invocable_v<const Fn&, Example, SampleRandom&>) {
      return transform_(std::move(example), random);
    } else {
      return std::apply(
          [&](auto first, auto... rest) {
            auto image = transform_(std::move(first), random);
            if constexpr (requires { example.second; }) {
              return std::make_pair(std::move(image), std::move(rest)...);
            } else {
              return std::make_tuple(std::move(image), std::move(rest)...);
            }
          },
          std::move(example));
    }
  }

  std::shared_ptr<Dataset> dataset_;
  Fn transform_;
  TransformedDatasetOptions options_;
  std::shared_ptr<std::atomic<int64_t>> epoch_ = std::make_shared<std::atomic<int64_t>>(0);
};

template <typename Dataset, typename Fn>
TransformedDataset(std::shared_ptr<Dataset>, Fn) -> TransformedDataset<Dataset, Fn>;
template <typename Dataset, typename Fn>
TransformedDataset(std::shared_ptr<Dataset>, Fn, TransformedDatasetOptions) -> TransformedDataset<Dataset, Fn>;
template <typename Dataset, typename Fn>
TransformedDataset(Dataset, Fn) -> TransformedDataset<Dataset, Fn>;
template <typename Dataset, typename Fn>
TransformedDataset(Dataset, Fn, TransformedDatasetOptions) -> TransformedDataset<Dataset, Fn>;

}  // namespace cohort::data
