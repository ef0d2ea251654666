/// MixUp and CutMix, as torchvision.transforms.v2: mix each image of a batch with the one before it, and make labels with the
/// share of each image.
///
///     SampleRandom random(seed, epoch, /*index=*/step * world_size + rank);
///     const auto [inputs, targets] = MixUp({.num_classes = 10})(images, labels, random);
///     const auto loss = torch::cross_entropy_loss(model->forward(inputs), targets);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

struct MixOptions {
  /// The number of classes if labels are class numbers. If absent, labels are shares already, [batch, classes].
  std::optional<int64_t> num_classes = {};
  /// The share is drawn from Beta(alpha, alpha).
  double alpha = 1.0;
};

/// Adds images, weighted by their shares.
class COHORT_API MixUp {
 public:
  /// Throws c10::ValueError unless alpha > 0 and num_classes >= 1.
  explicit MixUp(MixOptions options);
  /// `images`: [batch, channels, height, width], floating point; `labels`: int64 [batch], or floating point [batch, classes].
  /// Returns: images, and labels [batch, classes] with the images' dtype. Throws c10::ValueError for other shapes and dtypes.
  std::pair<at::Tensor, at::Tensor> operator()(const at::Tensor& images, const at::Tensor& labels,
                                               SampleRandom& random) const;

 private:
  MixOptions options_;
};

/// Pastes a rectangle of one image into the other; the shares are those of the area.
class COHORT_API CutMix {
 public:
  /// Like MixUp. Images may also be uint8; labels are then float32.
  explicit CutMix(MixOptions options);
  std::pair<at::Tensor, at::Tensor> operator()(const at::Tensor& images, const at::Tensor& labels,
                                               SampleRandom& random) const;

 private:
  MixOptions options_;
};

}  // namespace cohort::data
