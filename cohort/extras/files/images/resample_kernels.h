/// The inner loops of resample(). Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::files::detail {

/// How many sums are computed at once. Rows of intermediate results are padded to a multiple of it.
constexpr size_t kLanes = 32;

struct ResampleKernels {
  /// to[lane] = the sum over j < num_taps of weights[j] * from[j * stride + lane], divided by 2^precision and rounded, within
  /// 0 to 255, for kLanes lanes.
  void (*weigh)(const uint8_t* from, ptrdiff_t stride, const int16_t* weights, size_t num_taps, int precision,
                uint8_t* to);
  /// to[x * kLanes + lane] = rows[lane][x] for x < width. Reads no further; writes columns up to a multiple of 16.
  void (*rows_to_columns)(const uint8_t* const* rows, size_t width, uint8_t* to);
  /// rows[lane][x] = from[x * kLanes + lane] for x < width, and possibly further, up to a multiple of 16.
  void (*columns_to_rows)(const uint8_t* from, size_t width, uint8_t* const* rows);
};

const ResampleKernels& plain_kernels();
/// The fastest kernels for this machine.
const ResampleKernels& best_kernels();

}  // namespace cohort::files::detail
