#include "cohort/extras/data/augmentation/mixup.h"

#include <ATen/ops/one_hot.h>
#include <ATen/ops/roll.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace cohort::data {
namespace {

void check_mix_options(const MixOptions& options, const char* who) {
  TORCH_CHECK_VALUE(options.alpha > 0, "[cohort] ", who, " needs alpha > 0, but got ", options.alpha);
  TORCH_CHECK_VALUE(options.num_classes.value_or(1) >= 1, "[cohort] ", who, " needs num_classes >= 1, but got ",
                    *options.num_classes);
}

void check_batch(const at::Tensor& images, const at::Tensor& labels, const MixOptions& options, const char* who) {
  TORCH_CHECK_VALUE(images.dim() == 4 && images.numel() > 0, "[cohort] ", who,
                    " needs images [batch, channels, height, width], but got ", images.sizes());
  TORCH_CHECK_VALUE(labels.dim() > 0 && labels.size(0) == images.size(0), "[cohort] ", who,
                    " needs a label for each of ", images.size(0), " images, but got labels ", labels.sizes());
  const bool are_numbers = labels.dim() == 1 && labels.scalar_type() == at::kLong && options.num_classes;
  const bool are_shares = labels.dim() == 2 && labels.is_floating_point() &&
                          (!options.num_classes || labels.size(1) == *options.num_classes);
  TORCH_CHECK_VALUE(are_numbers || are_shares, "[cohort] ", who,
                    " needs labels int64 [batch] and num_classes, or floating [batch, classes], ", "but got ",
                    labels.scalar_type(), " ", labels.sizes(), " and ",
                    options.num_classes ? c10::str("num_classes = ", *options.num_classes) : "no num_classes");
}

at::Tensor mix_labels(const at::Tensor& labels, double share, std::optional<int64_t> num_classes,
                      at::ScalarType dtype) {
  const at::Tensor shares = (labels.dim() == 1 ? at::one_hot(labels, *num_classes) : labels).to(dtype);
  return at::roll(shares, 1, 0).mul_(1.0 - share).add_(shares.mul(share));
}

}  // namespace

MixUp::MixUp(MixOptions options) : options_(options) { check_mix_options(options, "MixUp"); }

std::pair<at::Tensor, at::Tensor> MixUp::operator()(const at::Tensor& images, const at::Tensor& labels,
                                                    SampleRandom& random) const {
  check_batch(images, labels, options_, "MixUp");
  TORCH_CHECK_VALUE(images.is_floating_point(), "[cohort] MixUp needs floating images, but got ", images.scalar_type());
  const double share = random.beta(options_.alpha);
  return {at::roll(images, 1, 0).mul_(1.0 - share).add_(images.mul(share)),
          mix_labels(labels, share, options_.num_classes, images.scalar_type())};
}

CutMix::CutMix(MixOptions options) : options_(options) { check_mix_options(options, "CutMix"); }

std::pair<at::Tensor, at::Tensor> CutMix::operator()(const at::Tensor& images, const at::Tensor& labels,
                                                     SampleRandom& random) const {
  check_batch(images, labels, options_, "CutMix");
  const int64_t height = images.size(2);
  const int64_t width = images.size(3);
  const double half = 0.5 * std::sqrt(1.0 - random.beta(options_.alpha));
  const int64_t x = random.integer(0, width);
  const int64_t y = random.integer(0, height);
  const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
  const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
  const int64_t left = std::max<int64_t>(x - half_width, 0);
  const int64_t top = std::max<int64_t>(y - half_height, 0);
  const int64_t cut_width = std::min(x + half_width, width) - left;
  const int64_t cut_height = std::min(y + half_height, height) - top;
  const auto cut = [&](const at::Tensor& from) { return from.narrow(2, top, cut_height).narrow(3, left, cut_width); };
  at::Tensor result = images.clone();
  cut(result).copy_(cut(at::roll(images, 1, 0)));
  const double share = 1.0 - static_cast<double>(cut_height * cut_width) / static_cast<double>(height * width);
  const at::ScalarType dtype = images.is_floating_point() ? images.scalar_type() : at::kFloat;
  return {result, mix_labels(labels, share, options_.num_classes, dtype)};
}

}  // namespace cohort::data
