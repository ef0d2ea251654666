#include "cohort/extras/data/transforms/compose.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <array>
#include <utility>

#include "cohort/extras/data/transforms/fused_transforms.h"

namespace cohort::data {
namespace {

void append_pixels(const FusedTransforms& fused, const ByteImage& pixels, SampleRandom& random, ImageStack& stack) {
  const PixelPlaces places = fused.choose_places(pixels.size, random);
  const std::array<int64_t, 3> sizes{pixels.num_channels, places.rows.length, places.columns.length};
  if (float* const row = stack.next(sizes)) return fused.write(pixels, places, row);
  at::Tensor image = at::empty(sizes, at::kFloat);
  fused.write(pixels, places, image.mutable_data_ptr<float>());
  stack.add(image);
}

}  // namespace

Compose::Compose(std::vector<Transform> transforms)
    : transforms_(std::move(transforms)), fused_(FusedTransforms::at_end_of(transforms_)) {}

at::Tensor Compose::apply(at::Tensor image, size_t first, size_t last, SampleRandom& random) const {
  for (size_t i = first; i < last; ++i) image = transforms_[i](image, random);
  return image;
}

at::Tensor Compose::operator()(const at::Tensor& image, SampleRandom& random) const {
  if (!fused_) return apply(image, 0, transforms_.size(), random);
  const at::Tensor bytes = apply(image, 0, fused_->first(), random);
  if (!fused_->takes(bytes)) return apply(bytes, fused_->first(), transforms_.size(), random);
  const ByteImage pixels = byte_image(bytes);
  const PixelPlaces places = fused_->choose_places(pixels.size, random);
  at::Tensor result = at::empty({pixels.num_channels, places.rows.length, places.columns.length}, at::kFloat);
  fused_->write(pixels, places, result.mutable_data_ptr<float>());
  return result;
}

void Compose::append(const at::Tensor& image, SampleRandom& random, ImageStack& stack) const {
  if (!fused_) return stack.add(apply(image, 0, transforms_.size(), random));
  const at::Tensor bytes = apply(image, 0, fused_->first(), random);
  if (!fused_->takes(bytes)) return stack.add(apply(bytes, fused_->first(), transforms_.size(), random));
  append_pixels(*fused_, byte_image(bytes), random, stack);
}

void Compose::append_row(const at::Tensor& images, int64_t index, SampleRandom& random, ImageStack& stack) const {
  const bool is_fused = fused_ && fused_->first() == 0 && images.dim() == 4 && images.scalar_type() == at::kByte &&
                        images.is_contiguous() && images.is_cpu() && images.numel() > 0 && index < images.size(0) &&
                        fused_->takes_channels(images.size(1));
  if (!is_fused) return append(images.select(0, index), random, stack);
  const int64_t height = images.size(2);
  const int64_t width = images.size(3);
  append_pixels(*fused_,
                {.data = images.const_data_ptr<uint8_t>() + index * images.stride(0),
                 .num_channels = images.size(1),
                 .size = {height, width},
                 .channel_stride = height * width,
                 .row_stride = width,
                 .column_stride = 1},
                random, stack);
}

RandomChoice::RandomChoice(std::vector<Transform> transforms) : transforms_(std::move(transforms)) {
  TORCH_CHECK_VALUE(!transforms_.empty(), "[cohort] RandomChoice needs at least one transform");
}

at::Tensor RandomChoice::operator()(const at::Tensor& image, SampleRandom& random) const {
  return transforms_[random.integer(0, static_cast<int64_t>(transforms_.size()))](image, random);
}

RandomApply::RandomApply(std::vector<Transform> transforms, double p) : transforms_(std::move(transforms)), p_(p) {}

at::Tensor RandomApply::operator()(const at::Tensor& image, SampleRandom& random) const {
  return random.chance(p_) ? transforms_(image, random) : image;
}

}  // namespace cohort::data
