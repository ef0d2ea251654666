/// Transform and Compose, as torchvision.transforms: what turns one image into another.
///
///     const Compose transform({RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor(), Normalize({0.5}, {0.5})});
///     const at::Tensor input = transform(image, random);
///
/// A transform is called as `transform(image, random)`, with an image [channels, height, width], uint8 in 0 .. 255 or floating
/// in 0 .. 1, and the SampleRandom of the example, from which alone it draws. It gives a new tensor, or the one it got, which
/// it never writes to. Names, defaults, formulas and error texts are those of torchvision's transforms (v1) on tensors.
///
/// Thread-safety: transforms are const; any number of threads may call one, each with a SampleRandom of its own.
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

/// Any of the transforms, or a function of your own.
using Transform = std::function<at::Tensor(const at::Tensor& image, SampleRandom& random)>;

class FusedTransforms;

/// Several transforms, one after the other. Crops, flips, ToTensor and Normalize at the end of the list are done in one pass over
/// an image of bytes, which changes no number.
class COHORT_API Compose {
 public:
  explicit Compose(std::vector<Transform> transforms);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

  /// For readers of whole batches: what operator() would give is the next image of `stack`.
  void append(const at::Tensor& image, SampleRandom& random, ImageStack& stack) const;
  /// The same for image `index` of [images, channels, height, width].
  void append_row(const at::Tensor& images, int64_t index, SampleRandom& random, ImageStack& stack) const;

 private:
  at::Tensor apply(at::Tensor image, size_t first, size_t last, SampleRandom& random) const;

  std::vector<Transform> transforms_;
  std::shared_ptr<const FusedTransforms> fused_;  ///< the last of them; null: none can be fused
};

/// One of them, each as often.
class COHORT_API RandomChoice {
 public:
  /// Throws c10::ValueError for none at all.
  explicit RandomChoice(std::vector<Transform> transforms);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  std::vector<Transform> transforms_;
};

/// All of them, or with probability 1 - p none.
class COHORT_API RandomApply {
 public:
  explicit RandomApply(std::vector<Transform> transforms, double p = 0.5);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  Compose transforms_;
  double p_;
};

}  // namespace cohort::data
