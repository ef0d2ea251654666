#include "cohort/extras/files/images/resample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cohort/extras/files/images/resample_weights.h"

namespace cohort::files {
namespace {

struct Planes {
  size_t channels;
  size_t height;
  size_t width;
  std::vector<uint8_t> bytes;

  PlanesView view() const {
    return {
        bytes.data(), channels, height, width, static_cast<ptrdiff_t>(height * width), static_cast<ptrdiff_t>(width)};
  }
  uint8_t at(size_t c, size_t y, size_t x) const { return bytes[(c * height + y) * width + x]; }
};

Planes noise(size_t channels, size_t height, size_t width) {
  std::mt19937 random(7);
  Planes planes{channels, height, width, std::vector<uint8_t>(channels * height * width)};
  // Many extremes, so that bicubic weights lead beyond them.
  for (uint8_t& byte : planes.bytes)
    byte = random() % 3 == 0 ? static_cast<uint8_t>(255 * (random() % 2)) : static_cast<uint8_t>(random());
  return planes;
}

double filter_by_definition(ResampleFilter filter, double x) {
  x = std::abs(x);
  if (filter == ResampleFilter::kBilinear) return std::max(0.0, 1 - x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

// Along a row of values that lie `stride` apart.
double resampled(const std::vector<double>& row, size_t to, size_t i, ResampleFilter filter) {
  const double scale = static_cast<double>(row.size()) / static_cast<double>(to);
  const double width = std::max(scale, 1.0);
  double sum = 0;
  double total = 0;
  for (size_t j = 0; j < row.size(); ++j) {
    const double weight =
        filter_by_definition(filter, (static_cast<double>(j) + 0.5 - (static_cast<double>(i) + 0.5) * scale) / width);
    sum += weight * row[j];
    total += weight;
  }
  return std::clamp(std::round(sum / total), 0.0, 255.0);
}

Planes resample_by_definition(const Planes& from, size_t height, size_t width, ResampleFilter filter) {
  Planes rows{from.channels, from.height, width, {}};
  for (size_t c = 0; c < from.channels; ++c) {
    for (size_t y = 0; y < from.height; ++y) {
      std::vector<double> row;
      for (size_t x = 0; x < from.width; ++x) row.push_back(from.at(c, y, x));
      for (size_t x = 0; x < width; ++x) rows.bytes.push_back(static_cast<uint8_t>(resampled(row, width, x, filter)));
    }
  }
  Planes result{from.channels, height, width, {}};
  for (size_t c = 0; c < from.channels; ++c) {
    for (size_t y = 0; y < height; ++y) {
      for (size_t x = 0; x < width; ++x) {
        std::vector<double> column;
        for (size_t i = 0; i < from.height; ++i) column.push_back(rows.at(c, i, x));
        result.bytes.push_back(static_cast<uint8_t>(resampled(column, height, y, filter)));
      }
    }
  }
  return result;
}

// Guarded by bytes that nobody may write.
std::vector<uint8_t> resize(const PlanesView& from, const ResampleTarget& target, ResampleFilter filter,
                            bool is_plain = false) {
  constexpr size_t kGuard = 64;
  const size_t size = from.channels * target.window_height * target.window_width;
  std::vector<uint8_t> memory(size + 2 * kGuard, 0xA5);
  (is_plain ? detail::resample_plainly : resample)(from, target, filter, memory.data() + kGuard);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(memory[i], 0xA5);
    EXPECT_EQ(memory[kGuard + size + i], 0xA5);
  }
  return {memory.begin() + kGuard, memory.end() - kGuard};
}

const ResampleFilter kFilters[] = {ResampleFilter::kBilinear, ResampleFilter::kBicubic};
const size_t kSizes[][2] = {{9, 13}, {20, 45}, {37, 51}, {1, 1}, {1, 64}, {64, 1}, {37, 20}, {80, 51}, {100, 133}};

TEST(Resample, IsTheDefinitionWithinOne) {
  const Planes image = noise(3, 37, 51);
  for (const auto filter : kFilters) {
    for (const auto& [height, width] : kSizes) {
      const auto result = resize(image.view(), ResampleTarget::whole(height, width), filter);
      const auto expected = resample_by_definition(image, height, width, filter).bytes;
      ASSERT_EQ(result.size(), expected.size());
      size_t num_different = 0;
      for (size_t i = 0; i < result.size(); ++i) {
        EXPECT_LE(std::abs(result[i] - expected[i]), 1) << height << " x " << width << ' ' << i;
        num_different += result[i] != expected[i] ? 1 : 0;
      }
      // Only what lies between two bytes may go either way.
      EXPECT_LE(num_different, 2 + result.size() / 50) << height << " x " << width;
    }
  }
}

TEST(Resample, IsTheSameWithAndWithoutWideInstructions) {
  for (const auto& [from_height, from_width] : kSizes) {
    const Planes image = noise(3, from_height, from_width);
    for (const auto filter : kFilters) {
      for (const auto& [height, width] : kSizes) {
        const auto target = ResampleTarget::whole(height, width);
        EXPECT_EQ(resize(image.view(), target, filter), resize(image.view(), target, filter, /*is_plain=*/true));
      }
    }
  }
}

TEST(Resample, AWindowIsAPartOfTheWhole) {
  const Planes image = noise(2, 41, 67);
  for (const auto filter : kFilters) {
    for (const auto& [height, width] : {std::pair<size_t, size_t>{23, 30}, {41, 30}, {60, 67}, {90, 120}}) {
      const auto whole = resize(image.view(), ResampleTarget::whole(height, width), filter);
      const ResampleTarget window{height, width, 5, 7, 11, 13};
      std::vector<uint8_t> expected;
      for (size_t c = 0; c < 2; ++c) {
        for (size_t y = 5; y < 16; ++y) {
          for (size_t x = 7; x < 20; ++x) expected.push_back(whole[(c * height + y) * width + x]);
        }
      }
      EXPECT_EQ(resize(image.view(), window, filter), expected);
    }
  }
}

// A part of planes is an image of its own: nothing beyond it has an effect.
TEST(Resample, APartOfPlanesNeedsNoCopy) {
  const Planes image = noise(3, 40, 60);
  Planes part{3, 21, 35, {}};
  for (size_t c = 0; c < 3; ++c) {
    for (size_t y = 9; y < 30; ++y) {
      for (size_t x = 14; x < 49; ++x) part.bytes.push_back(image.at(c, y, x));
    }
  }
  PlanesView view = image.view();
  view.pixels += 9 * 60 + 14;
  view.height = 21;
  view.width = 35;
  for (const auto filter : kFilters) {
    const auto target = ResampleTarget::whole(16, 16);
    EXPECT_EQ(resize(view, target, filter), resize(part.view(), target, filter));
  }
}

TEST(Resample, WeightsOfAResultAddUpToOne) {
  for (const auto filter : kFilters) {
    for (const auto& [from, to] : {std::pair<size_t, size_t>{500, 341}, {375, 256}, {7, 100}, {100, 1}, {5, 5}}) {
      const auto weights = detail::resample_weights(from, to, 0, to, filter);
      for (size_t i = 0; i < to; ++i) {
        int sum = 0;
        for (size_t j = 0; j < weights.taps[i].count; ++j) sum += weights.of(i)[j];
        EXPECT_NEAR(static_cast<double>(sum) / (1 << weights.precision), 1, 0.01);
        EXPECT_LE(weights.taps[i].first + weights.taps[i].count, from);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::files
