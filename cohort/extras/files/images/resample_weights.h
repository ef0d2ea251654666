/// The pixels, and their weights, that make a pixel of a resized row. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/extras/files/images/resample.h"

namespace cohort::files::detail {

/// Weights of a window of the result. Result i is the sum over j < taps[i].count of weights[i * max_taps + j] times pixel
/// taps[i].first + j, divided by 2^precision and rounded.
struct ResampleWeights {
  struct Taps {
    size_t first;
    size_t count;
  };
  std::vector<Taps> taps;
  std::vector<int16_t> weights;
  size_t max_taps = 0;
  int precision = 0;

  const int16_t* of(size_t i) const { return weights.data() + i * max_taps; }
  /// The pixels that any result needs: [begin, end).
  size_t begin() const { return taps.front().first; }
  size_t end() const { return taps.back().first + taps.back().count; }
};

/// Resizes `from` pixels to `to`, of which [window, window + window_size) are wanted.
ResampleWeights resample_weights(size_t from, size_t to, size_t window, size_t window_size, ResampleFilter filter);

}  // namespace cohort::files::detail
