/// Transform and Compose, as torchvision.transforms: functions from one image to another.
///
///     const Compose transform({RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor(), Normalize({0.5}, {0.5})});
///     const at::Tensor input = transform(image, random);
///
/// A transform is called as `transform(image, random)`, with an image [channels, height, width], uint8 in 0 .. 255 or floating
/// point in 0 .. 1, and the SampleRandom of the example, its only source of random numbers. It returns a new tensor, or the image
/// itself, and never writes to the image. Names, defaults, formulas and error texts are those of torchvision's transforms (v1) on
/// tensors.
///
/// Thread-safety: transforms are const; any number of threads may call one, each with its own SampleRandom.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/image_stack.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

/// A transform, or a function of your own.
using Transform = std::function<at::Tensor(const at::Tensor& image, SampleRandom& random)>;

class FusedTransforms;

/// Several transforms, one after the other. Runs crops, flips, ToTensor and Normalize at the end of the list in one pass over a
/// uint8 image, with the same numbers.
class COHORT_API Compose {
 public:
  explicit Compose(std::vector<Transform> transforms);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

  /// Appends the result of operator() to `stack`, for readers of whole batches.
  void append(const at::Tensor& image, SampleRandom& random, ImageStack& stack) const;
  /// Appends the result for image `index` of [images, channels, height, width].
  void append_row(const at::Tensor& images, int64_t index, SampleRandom& random, ImageStack& stack) const;

 private:
  at::Tensor apply(at::Tensor image, size_t first, size_t last, SampleRandom& random) const;

  std::vector<Transform> transforms_;
  std::shared_ptr<const FusedTransforms> fused_;  ///< fuses the last transforms; null if none can be fused
};

/// One of the transforms, all with the same probability.
class COHORT_API RandomChoice {
 public:
  /// Throws c10::ValueError without transforms.
  explicit RandomChoice(std::vector<Transform> transforms);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  std::vector<Transform> transforms_;
};

/// All transforms with probability p, else none.
class COHORT_API RandomApply {
 public:
  explicit RandomApply(std::vector<Transform> transforms, double p = 0.5);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  Compose transforms_;
  double p_;
};

}  // namespace cohort::data
