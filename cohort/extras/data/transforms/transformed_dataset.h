/// TransformedDataset: a dataset whose examples are transformed when they are read.
///
///     const TransformedDataset dataset(images, Compose({RandomCrop(32, {.padding = {4}}), ToTensor()}), {.seed = 7});
///     const DataLoader loader(dataset, {.batch_size = 32, .num_workers = 2});
///     for (int epoch = 0; epoch < 3; ++epoch) {
///       for (auto& [image, label] : loader) ...
///     }
///
/// Each epoch has different crops, which do not depend on the number of workers and ranks: a loader that shuffles, or whose
/// sampler does, tells the dataset its epoch. For other loaders, call dataset.set_epoch(epoch) before each epoch.
///
/// If an example is a pair or a tuple, the transform gets its first part, the image, and the rest stays as it is. Any other
/// example goes to the transform as a whole; so does a pair if the function takes one.
///
/// Thread-safety: any number of threads may call get(), which is const, if the dataset inside allows it. Copies share the epoch,
/// so that the copy in a loader knows it; call set_epoch only between epochs, as a worker may be reading ahead.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/loader/batch_source.h"
#include "cohort/data/loader/collate.h"
#include "cohort/data/loader/read_batch.h"
#include "cohort/extras/data/transforms/compose.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

namespace detail {

template <typename Example>
struct FirstPart;
template <>
struct FirstPart<at::Tensor> {
  using Type = at::Tensor;
};
template <typename First, typename... Rest>
struct FirstPart<std::tuple<First, Rest...>> {
  using Type = First;
};
template <typename First, typename Second>
struct FirstPart<std::pair<First, Second>> {
  using Type = First;
};

/// Returns the image of an example, or the images of a batch.
template <typename Example>
at::Tensor& image_of(Example& example) {
  if constexpr (std::is_same_v<Example, at::Tensor>)
    return example;
  else
    return std::get<0>(example);
}

/// Returns all parts of an example except its image.
template <typename Example>
auto rest_of(Example example) {
  if constexpr (std::is_same_v<Example, at::Tensor>) {
    return std::tuple<>();
  } else {
    return std::apply([](auto&, auto&... rest) { return std::make_tuple(std::move(rest)...); }, example);
  }
}

/// Returns a pair, a tuple or an image, depending on `Example`: the inverse of image_of and rest_of.
template <typename Example, typename... Rest>
auto with_image(at::Tensor image, std::tuple<Rest...> rest) {
  if constexpr (std::is_same_v<Example, at::Tensor>) {
    return image;
  } else if constexpr (requires(Example example) { example.second; }) {
    return std::pair<at::Tensor, Rest...>(std::move(image), std::get<0>(std::move(rest)));
  } else {
    return std::tuple_cat(std::make_tuple(std::move(image)), std::move(rest));
  }
}

/// True for a transform that writes images into a batch, like Compose, and examples whose image is a tensor.
template <typename Fn, typename Example>
concept AppendsImages = std::is_same_v<typename FirstPart<Example>::Type, at::Tensor> &&
    requires(const Fn& fn, const at::Tensor& image, SampleRandom& random, ImageStack& stack) {
  fn.append(image, random, stack);
  fn.append_row(image, int64_t{0}, random, stack);
};

}  // namespace detail

struct TransformedDatasetOptions {
  /// Other seeds give other crops, flips and so on. Use the same on every rank, or the examples depend on the number of ranks.
  uint64_t seed = 0;
};

template <typename Dataset, typename Fn = Compose>
class TransformedDataset {
 public:
  explicit TransformedDataset(std::shared_ptr<Dataset> dataset, Fn transform, TransformedDatasetOptions options = {})
      : dataset_(detail::not_null(std::move(dataset), "TransformedDataset")),
        transform_(std::move(transform)),
        options_(options) {}
  explicit TransformedDataset(Dataset dataset, Fn transform, TransformedDatasetOptions options = {})
      : TransformedDataset(std::make_shared<Dataset>(std::move(dataset)), std::move(transform), options) {}

  /// Throws what the dataset and the transform throw.
  auto get(int64_t index) const {
    auto example = dataset_->get(index);
    SampleRandom random(options_.seed, epoch(), index);
    return apply(std::move(example), random);
  }
  /// Returns a batch for DataLoader: equal to collate() of get(), but each image is written directly into the batch. `progress`:
  /// notes the current example.
  auto get_batch(const std::vector<int64_t>& indices,
                 detail::ReadProgress& progress) const requires detail::AppendsImages<Fn, detail::ExampleOf<Dataset>> {
    using Batch = detail::Collated<detail::ExampleOf<Dataset>>;
    if constexpr (requires {
                    { dataset_->get_batch(indices) } -> std::same_as<Batch>;
                  }) {
      if (!progress.skips()) return transform_rows(dataset_->get_batch(indices), indices, progress);
    }
    return read_one_by_one<Batch>(indices, progress);
  }
  int64_t size() const {
    if constexpr (requires { dataset_->size().value(); }) {
      return static_cast<int64_t>(dataset_->size().value());  // LibTorch's own datasets return an optional
    } else {
      return static_cast<int64_t>(dataset_->size());
    }
  }

  /// Sets the epoch of the random numbers, in [0, 2^32). After the first call, a DataLoader changes it only in its own
  /// set_epoch().
  void set_epoch(int64_t epoch) const {
    epoch_->is_programs = true;
    epoch_->number = epoch;
  }
  int64_t epoch() const { return epoch_->number; }
  /// Sets the epoch for a DataLoader, unless the program sets epochs of the dataset itself. Tells the dataset inside, too.
  void begin_epoch(int64_t epoch, detail::EpochBy who) const {
    if (who == detail::EpochBy::kLoader) {
      set_epoch(epoch);
    } else if (!epoch_->is_programs) {
      epoch_->number = epoch;
    }
    detail::tell_epoch(*dataset_, epoch, who);
  }
  Dataset& dataset() const { return *dataset_; }

 private:
  template <typename Batch>
  Batch transform_rows(Batch batch, const std::vector<int64_t>& indices, detail::ReadProgress& progress) const {
    at::Tensor& images = detail::image_of(batch);
    ImageStack stack(static_cast<int64_t>(indices.size()));
    int64_t row = 0;
    for (const int64_t index : indices) {
      progress.begin_sample(index);
      SampleRandom random(options_.seed, epoch(), index);
      transform_.append_row(images, row++, random, stack);
    }
    progress.begin_collate();
    images = stack.join();
    return batch;
  }

  template <typename Batch>
  Batch read_one_by_one(const std::vector<int64_t>& indices, detail::ReadProgress& progress) const {
    using Example = detail::ExampleOf<Dataset>;
    ImageStack stack(static_cast<int64_t>(indices.size()));
    std::vector<decltype(detail::rest_of(std::declval<Example>()))> rests;
    rests.reserve(indices.size());
    detail::read_samples(indices, progress, [&](int64_t index) {
      Example example = dataset_->get(index);
      SampleRandom random(options_.seed, epoch(), index);
      transform_.append(detail::image_of(example), random, stack);
      rests.push_back(detail::rest_of(std::move(example)));
    });
    return detail::with_image<Example>(stack.join(), collate(rests));
  }

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
  struct Epoch {
    std::atomic<int64_t> number = 0;
    std::atomic<bool> is_programs = false;
  };
  std::shared_ptr<Epoch> epoch_ = std::make_shared<Epoch>();
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
