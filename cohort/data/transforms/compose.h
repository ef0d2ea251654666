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

#include <functional>
#include <vector>

#include "cohort/data/transforms/sample_random.h"
#include "cohort/export.h"

namespace cohort::data {

/// Any of the transforms, or a function of your own.
using Transform = std::function<at::Tensor(const at::Tensor& image, SampleRandom& random)>;

/// Several transforms, one after the other.
class COHORT_API Compose {
 public:
  explicit Compose(std::vector<Transform> transforms);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  std::vector<Transform> transforms_;
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
