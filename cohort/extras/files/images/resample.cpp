#include "cohort/extras/files/images/resample.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cohort/extras/files/images/resample_kernels.h"
#include "cohort/extras/files/images/resample_weights.h"

namespace cohort::files {
namespace detail {
namespace {

size_t rounded_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The rows that the columns need, resized to the window's width. Each row has room for whole blocks of lanes.
struct ResizedRows {
  std::unique_ptr<uint8_t[]> bytes;
  size_t row_size;
  size_t rows_per_channel;

  uint8_t* row(size_t i) const { return bytes.get() + i * row_size; }
};

// Puts kLanes rows next to each other as columns, to compute all of them at once.
void resize_rows(const std::vector<const uint8_t*>& from, const ResampleWeights& columns,
                 const ResampleKernels& kernels, const ResizedRows& to) {
  const size_t begin = columns.begin();
  const size_t width = columns.end() - begin;
  const size_t result_width = columns.taps.size();
  const auto block = std::make_unique_for_overwrite<uint8_t[]>(rounded_up(width, 16) * kLanes);
  const auto results = std::make_unique_for_overwrite<uint8_t[]>(rounded_up(result_width, 16) * kLanes);
  const uint8_t* from_rows[kLanes];
  uint8_t* to_rows[kLanes];
  for (size_t first = 0; first < from.size(); first += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      // Repeats the last row beyond it.
      const size_t row = std::min(first + lane, from.size() - 1);
      from_rows[lane] = from[row] + begin;
      to_rows[lane] = to.row(row);
    }
    kernels.rows_to_columns(from_rows, width, block.get());
    for (size_t x = 0; x < result_width; ++x) {
      kernels.weigh(block.get() + (columns.taps[x].first - begin) * kLanes, kLanes, columns.of(x),
                    columns.taps[x].count, columns.precision, results.get() + x * kLanes);
    }
    kernels.columns_to_rows(results.get(), result_width, to_rows);
  }
}

void resize_columns(const ResizedRows& from, const ResampleWeights& rows, const ResampleKernels& kernels, size_t width,
                    uint8_t* to, size_t channels) {
  uint8_t rest[kLanes];
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t y = 0; y < rows.taps.size(); ++y, to += width) {
      const uint8_t* first = from.row(channel * from.rows_per_channel + rows.taps[y].first - rows.begin());
      for (size_t x = 0; x < width; x += kLanes) {
        const bool is_whole = width - x >= kLanes;
        kernels.weigh(first + x, static_cast<ptrdiff_t>(from.row_size), rows.of(y), rows.taps[y].count, rows.precision,
                      is_whole ? to + x : rest);
        if (!is_whole) std::memcpy(to + x, rest, width - x);
      }
    }
  }
}

void resample_with(const ResampleKernels& kernels, const PlanesView& from, const ResampleTarget& target,
                   ResampleFilter filter, uint8_t* to) {
  const ResampleWeights rows =
      resample_weights(from.height, target.height, target.window_top, target.window_height, filter);
  const ResampleWeights columns =
      resample_weights(from.width, target.width, target.window_left, target.window_width, filter);
  const size_t num_rows = rows.end() - rows.begin();
  std::vector<const uint8_t*> from_rows;
  from_rows.reserve(from.channels * num_rows);
  for (size_t channel = 0; channel < from.channels; ++channel) {
    const uint8_t* plane = from.pixels + static_cast<ptrdiff_t>(channel) * from.channel_stride;
    for (size_t y = rows.begin(); y < rows.end(); ++y) {
      from_rows.push_back(plane + static_cast<ptrdiff_t>(y) * from.row_stride);
    }
  }
  ResizedRows resized{nullptr, rounded_up(target.window_width, kLanes), num_rows};
  resized.bytes = std::make_unique_for_overwrite<uint8_t[]>(from_rows.size() * resized.row_size);
  if (from.width == target.width) {
    for (size_t i = 0; i < from_rows.size(); ++i) {
      std::memcpy(resized.row(i), from_rows[i] + target.window_left, target.window_width);
    }
  } else {
    resize_rows(from_rows, columns, kernels, resized);
  }
  resize_columns(resized, rows, kernels, target.window_width, to, from.channels);
}

}  // namespace

void resample_plainly(const PlanesView& from, const ResampleTarget& target, ResampleFilter filter, uint8_t* to) {
  resample_with(plain_kernels(), from, target, filter, to);
}

}  // namespace detail

void resample(const PlanesView& from, const ResampleTarget& target, ResampleFilter filter, uint8_t* to) {
  detail::resample_with(detail::best_kernels(), from, target, filter, to);
}

}  // namespace cohort::files
