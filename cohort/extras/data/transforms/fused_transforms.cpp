#include "cohort/extras/data/transforms/fused_transforms.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "cohort/extras/data/transforms/to_tensor.h"

namespace cohort::data {
namespace {

constexpr int64_t kBytes = 256;

bool is_value_map(const Transform& transform) { return transform.target<ToTensor>() || transform.target<Normalize>(); }

// Returns the number that a transform pads with; absent if it does not pad, NaN if it pads with different numbers.
std::optional<double> padding_value(const Transform& transform) {
  if (transform.target<CenterCrop>()) return 0.0;
  const auto* const crop = transform.target<RandomCrop>();
  return crop ? crop->padding_value() : std::nullopt;
}

bool can_be_fused(const Transform& transform) {
  return is_value_map(transform) || transform.target<RandomHorizontalFlip>() ||
         transform.target<RandomVerticalFlip>() || transform.target<CenterCrop>() || transform.target<RandomCrop>();
}

// Returns the index of the first of the last transforms that can be fused.
size_t begin_of_end(const std::vector<Transform>& transforms) {
  size_t first = transforms.size();
  int num_padding = 0;
  while (first > 0 && can_be_fused(transforms[first - 1])) {
    const auto value = padding_value(transforms[first - 1]);
    if (value && (std::isnan(*value) || ++num_padding > 1)) break;
    --first;
  }
  // Normalize does not take bytes, so transforms before it need a ToTensor to be fused.
  bool has_floats = false;
  for (size_t i = first; i < transforms.size(); ++i) {
    if (transforms[i].target<Normalize>() && !has_floats) first = i + 1;
    if (transforms[i].target<ToTensor>()) has_floats = true;
  }
  return has_floats ? first : transforms.size();
}

at::Tensor map_values(const std::vector<Transform>& transforms, size_t first, at::Tensor values) {
  SampleRandom none(0, 0, 0);
  for (size_t i = first; i < transforms.size(); ++i) {
    if (is_value_map(transforms[i])) values = transforms[i](values, none);
  }
  return values;
}

void write_row(const uint8_t* pixel, int64_t step, const std::array<float, 256>& table, float* begin, float* end) {
  // Separate loops for the known steps, which the compiler optimizes better.
  const int64_t count = end - begin;
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) begin[i] = table[pixel[i]];
  } else if (step == -1) {
    for (int64_t i = 0; i < count; ++i) begin[i] = table[pixel[-i]];
  } else {
    for (int64_t i = 0; i < count; ++i) begin[i] = table[pixel[i * step]];
  }
}

}  // namespace

void PixelAxis::crop(int64_t start, int64_t new_length) {
  const int64_t last = from + step * (length - 1);
  begin = std::max(begin, std::min(from, last));
  end = std::min(end, std::max(from, last) + 1);
  from += step * start;
  length = new_length;
}

void PixelAxis::flip() {
  from += step * (length - 1);
  step = -step;
}

std::pair<int64_t, int64_t> PixelAxis::inside() const {
  const int64_t first = step > 0 ? begin - from : from - end + 1;
  const int64_t last = step > 0 ? end - from : from - begin + 1;
  const int64_t low = std::clamp<int64_t>(first, 0, length);
  return {low, std::clamp<int64_t>(last, low, length)};
}

std::shared_ptr<const FusedTransforms> FusedTransforms::at_end_of(const std::vector<Transform>& transforms) {
  const size_t first = begin_of_end(transforms);
  if (first == transforms.size()) return nullptr;
  std::shared_ptr<FusedTransforms> fused(new FusedTransforms);
  fused->first_ = first;
  for (size_t i = first; i < transforms.size(); ++i) {
    const Transform& transform = transforms[i];
    if (const auto* const crop = transform.target<RandomCrop>()) fused->moves_.emplace_back(*crop);
    if (const auto* const crop = transform.target<CenterCrop>()) fused->moves_.emplace_back(*crop);
    if (const auto* const flip = transform.target<RandomHorizontalFlip>()) fused->moves_.emplace_back(*flip);
    if (const auto* const flip = transform.target<RandomVerticalFlip>()) fused->moves_.emplace_back(*flip);
  }
  return fused->make_tables(transforms) ? fused : nullptr;
}

bool FusedTransforms::make_tables(const std::vector<Transform>& transforms) {
  int64_t num_channels = 1;
  const auto each_normalize = [&](auto&& fn) {
    for (size_t i = first_; i < transforms.size(); ++i) {
      if (const auto* const normalize = transforms[i].target<Normalize>()) fn(*normalize);
    }
  };
  bool is_possible = true;
  each_normalize([&](const Normalize& normalize) { num_channels = std::max(num_channels, normalize.num_values()); });
  each_normalize([&](const Normalize& normalize) { is_possible = is_possible && normalize.takes(num_channels); });
  if (!is_possible) return false;

  const at::Tensor bytes = at::arange(kBytes, at::kByte).view({1, 1, kBytes}).expand({num_channels, 1, kBytes});
  const at::Tensor values = map_values(transforms, first_, bytes).contiguous();
  tables_.resize(static_cast<size_t>(num_channels));
  std::memcpy(tables_.data(), values.const_data_ptr<float>(), values.nbytes());

  fills_.assign(tables_.size(), 0.0F);
  bool has_floats = false;
  for (size_t i = first_; i < transforms.size(); ++i) {
    has_floats = has_floats || transforms[i].target<ToTensor>();
    const auto value = padding_value(transforms[i]);
    if (!value) continue;
    if (!has_floats && !(*value >= 0 && *value < kBytes)) return false;  // padding itself reports the error
    const auto dtype = has_floats ? at::kFloat : at::kByte;
    const at::Tensor fill = map_values(transforms, i, at::full({num_channels, 1, 1}, *value, dtype)).contiguous();
    std::memcpy(fills_.data(), fill.const_data_ptr<float>(), fill.nbytes());
  }
  return true;
}

bool FusedTransforms::takes(const at::Tensor& image) const {
  return image.defined() && image.dim() == 3 && image.scalar_type() == at::kByte && image.is_cpu() &&
         image.layout() == at::kStrided && image.numel() > 0 && takes_channels(image.size(0));
}

PixelPlaces FusedTransforms::choose_places(ImageSize image, SampleRandom& random) const {
  PixelPlaces places{PixelAxis(image.height), PixelAxis(image.width)};
  const auto crop = [&](CropPlace place, ImageSize size) {
    places.rows.crop(place.top, size.height);
    places.columns.crop(place.left, size.width);
  };
  for (const Move& move : moves_) {
    const ImageSize now(places.rows.length, places.columns.length);
    if (const auto* const random_crop = std::get_if<RandomCrop>(&move)) {
      crop(random_crop->choose_place(now, random), random_crop->size());
    } else if (const auto* const center_crop = std::get_if<CenterCrop>(&move)) {
      crop(center_crop->place(now), center_crop->size());
    } else if (const auto* const horizontal = std::get_if<RandomHorizontalFlip>(&move)) {
      if (horizontal->flips(random)) places.columns.flip();
    } else if (std::get<RandomVerticalFlip>(move).flips(random)) {
      places.rows.flip();
    }
  }
  return places;
}

void FusedTransforms::write(const ByteImage& image, const PixelPlaces& places, float* result) const {
  const auto& [rows, columns] = places;
  const auto [first_row, last_row] = rows.inside();
  const auto [first_column, last_column] = columns.inside();
  const int64_t step = columns.step * image.column_stride;
  const uint8_t* const first_pixel = image.data + (columns.from + columns.step * first_column) * image.column_stride;
  for (int64_t channel = 0; channel < image.num_channels; ++channel) {
    const size_t which = tables_.size() == 1 ? 0 : static_cast<size_t>(channel);
    const uint8_t* const plane = first_pixel + channel * image.channel_stride;
    for (int64_t row = 0; row < rows.length; ++row, result += columns.length) {
      const bool is_inside = row >= first_row && row < last_row && first_column < last_column;
      float* const begin = is_inside ? result + first_column : result + columns.length;
      float* const end = is_inside ? result + last_column : begin;
      std::fill(result, begin, fills_[which]);
      if (is_inside) {
        write_row(plane + (rows.from + rows.step * row) * image.row_stride, step, tables_[which], begin, end);
      }
      std::fill(end, result + columns.length, fills_[which]);
    }
  }
}

ByteImage byte_image(const at::Tensor& image) {
  return {.data = image.const_data_ptr<uint8_t>(),
          .num_channels = image.size(0),
          .size = {image.size(1), image.size(2)},
          .channel_stride = image.stride(0),
          .row_stride = image.stride(1),
          .column_stride = image.stride(2)};
}

}  // namespace cohort::data
