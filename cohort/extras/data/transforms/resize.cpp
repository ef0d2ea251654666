#include "cohort/extras/data/transforms/resize.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/extras/data/transforms/image.h"
#include "cohort/extras/files/images/resample.h"

namespace cohort::data {
namespace {

void check_size(ImageSize size) {
  TORCH_CHECK_VALUE(size.height > 0 && size.width > 0, "[cohort] Resize needs sizes that are positive, but got (",
                    size.height, ", ", size.width, ")");
  check_sides({size.height, size.width}, "Resize");
}

at::Tensor interpolate(const at::Tensor& batch, at::IntArrayRef size, InterpolationMode mode, bool antialias) {
  switch (mode) {
    case InterpolationMode::kNearest:
      return at::upsample_nearest2d(batch, size);
    case InterpolationMode::kBilinear:
      return antialias ? at::_upsample_bilinear2d_aa(batch, size, /*align_corners=*/false)
                       : at::upsample_bilinear2d(batch, size, /*align_corners=*/false);
    case InterpolationMode::kBicubic:
      break;
  }
  return antialias ? at::_upsample_bicubic2d_aa(batch, size, /*align_corners=*/false)
                   : at::upsample_bicubic2d(batch, size, /*align_corners=*/false);
}

// Resizes bytes whose rows are contiguous: the same bits as LibTorch in a fraction of its time, without copying parts of images.
at::Tensor resample_bytes(const at::Tensor& image, ImageSize size, InterpolationMode mode) {
  const files::PlanesView planes{image.const_data_ptr<uint8_t>(),
                                 static_cast<size_t>(image.size(0)),
                                 static_cast<size_t>(height_of(image)),
                                 static_cast<size_t>(width_of(image)),
                                 image.stride(0),
                                 image.stride(1)};
  at::Tensor result = at::empty({image.size(0), size.height, size.width}, at::kByte);
  const auto target = files::ResampleTarget::whole(static_cast<size_t>(size.height), static_cast<size_t>(size.width));
  files::resample(
      planes, target,
      mode == InterpolationMode::kBicubic ? files::ResampleFilter::kBicubic : files::ResampleFilter::kBilinear,
      result.mutable_data_ptr<uint8_t>());
  return result;
}

}  // namespace

Resize::Resize(int64_t size, ResizeOptions options) : size_(size), is_shorter_side_(true), options_(options) {
  check_size(size_);
  TORCH_CHECK_VALUE(!options.max_size || *options.max_size > size, "max_size = ", *options.max_size,
                    " must be strictly greater than the requested size for the smaller edge size = ", size);
}

Resize::Resize(ImageSize size, ResizeOptions options) : size_(size), is_shorter_side_(false), options_(options) {
  check_size(size_);
  TORCH_CHECK_VALUE(!options.max_size,
                    "max_size should only be passed if size specifies the length of the smaller edge, "
                    "i.e. size should be an int or a sequence of length 1 in torchscript mode.");
}

// As _compute_resized_output_size of torchvision/transforms/functional.py; truncates like int() there.
ImageSize Resize::output_size(ImageSize image) const {
  if (!is_shorter_side_) return size_;
  const auto [shorter, longer] = std::minmax(image.width, image.height);
  int64_t new_shorter = size_.width;
  auto new_longer = static_cast<int64_t>(static_cast<double>(new_shorter * longer) / static_cast<double>(shorter));
  if (options_.max_size && new_longer > *options_.max_size) {
    new_shorter = static_cast<int64_t>(static_cast<double>(*options_.max_size) * static_cast<double>(new_shorter) /
                                       static_cast<double>(new_longer));
    new_longer = *options_.max_size;
  }
  return image.width <= image.height ? ImageSize(new_longer, new_shorter) : ImageSize(new_shorter, new_longer);
}

at::Tensor Resize::operator()(const at::Tensor& image) const {
  check_image(image, "Resize");
  return resize_image(image, output_size({height_of(image), width_of(image)}), options_.interpolation,
                      options_.antialias);
}

at::Tensor resize_image(const at::Tensor& image, ImageSize size, InterpolationMode interpolation, bool antialias) {
  check_image(image, "Resize");
  check_size(size);
  if (size == ImageSize(height_of(image), width_of(image))) return image;
  if (antialias && interpolation != InterpolationMode::kNearest && image.scalar_type() == at::kByte &&
      image.stride(2) == 1) {
    return resample_bytes(image, size, interpolation);
  }
  const at::Tensor batch = image.unsqueeze(0);
  // LibTorch 2.13 has errors in some antialiased results that are one pixel wide: floating-point results of 5 rows made from 37 x
  // 51 have wrong numbers, and uint8 results of one row fail an assertion. Transposed, they are one row, which it computes
  // correctly.
  if (antialias && size.width == 1 && interpolation != InterpolationMode::kNearest) {
    const bool is_bytes = image.scalar_type() == at::kByte;
    const at::Tensor turned = (is_bytes ? batch.to(at::kFloat) : batch).transpose(2, 3).contiguous();
    const at::Tensor row = interpolate(turned, {1, size.height}, interpolation, antialias).transpose(2, 3).squeeze(0);
    return is_bytes ? row.round().clamp_(0, 255).to(at::kByte) : row;
  }
  return interpolate(batch, {size.height, size.width}, interpolation, antialias).squeeze(0);
}

}  // namespace cohort::data
