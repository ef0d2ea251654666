#include "benchmarks/dataloader/photos.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <vector>

#include "benchmarks/support/value_or_throw.h"
#include "cohort/extras/files/images/image_writer.h"

namespace cohort::bench {
namespace {

constexpr int kPhotoWidth = 500;
constexpr int kPhotoHeight = 375;
constexpr int kPhotoQuality = 90;
constexpr int kFolders = 10;

// Smooth noise: random numbers on a grid, with interpolation between them.
class SmoothNoise {
 public:
  SmoothNoise(int cell, std::mt19937& random)
      : cell_(cell),
        columns_(kPhotoWidth / cell + 2),
        values_(static_cast<size_t>(columns_) * (kPhotoHeight / cell + 2)) {
    std::uniform_real_distribution<float> value(-1, 1);
    for (float& each : values_) each = value(random);
  }
  float at(int x, int y) const {
    const int column = x / cell_, row = y / cell_;
    const auto part = [this](int place) { return static_cast<float>(place % cell_) / static_cast<float>(cell_); };
    const float* const upper = &values_[static_cast<size_t>(row) * columns_ + column];
    const float* const lower = upper + columns_;
    const float top = upper[0] + (upper[1] - upper[0]) * part(x);
    const float bottom = lower[0] + (lower[1] - lower[0]) * part(x);
    return top + (bottom - top) * part(y);
  }

 private:
  int cell_;
  int columns_;
  std::vector<float> values_;
};

// Draws large shapes of different colors, with finer texture and the noise of a sensor.
std::vector<uint8_t> make_photo(uint32_t seed) {
  std::mt19937 random(seed);
  const std::array<SmoothNoise, 3> shapes{SmoothNoise(120, random), SmoothNoise(120, random), SmoothNoise(120, random)};
  const SmoothNoise edges(25, random), texture(6, random);
  std::vector<uint8_t> pixels;
  pixels.reserve(static_cast<size_t>(kPhotoWidth) * kPhotoHeight * 3);
  for (int y = 0; y < kPhotoHeight; ++y) {
    for (int x = 0; x < kPhotoWidth; ++x) {
      const float fine = 22 * edges.at(x, y) + 14 * texture.at(x, y) + static_cast<float>(random() >> 28) - 8;
      for (const SmoothNoise& shape : shapes) {
        pixels.push_back(static_cast<uint8_t>(std::clamp(128 + 90 * shape.at(x, y) + fine, 0.0F, 255.0F)));
      }
    }
  }
  return pixels;
}

void write_jpeg(const std::string& path, const std::vector<uint8_t>& pixels) {
  const files::ImageView view{pixels.data(), {kPhotoHeight, kPhotoWidth, 3}, files::ImageLayout::kInterleaved};
  const auto encoded = value_or_throw(files::encode_jpeg(view, {.quality = kPhotoQuality}));
  std::ofstream file(path, std::ios::binary);
  file << encoded;
  if (!file.flush()) throw std::runtime_error(fmt::format("{} cannot be written", path));
}

}  // namespace

void write_photos(const std::string& folder, int count) {
  for (int i = 0; i < count; ++i) {
    const std::string of_class = fmt::format("{}/class-{}", folder, i % kFolders);
    std::filesystem::create_directories(of_class);
    write_jpeg(fmt::format("{}/{:04}.jpg", of_class, i), make_photo(static_cast<uint32_t>(i)));
  }
}

}  // namespace cohort::bench
