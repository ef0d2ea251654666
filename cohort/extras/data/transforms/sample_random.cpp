#include "cohort/extras/data/transforms/sample_random.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace cohort::data {
namespace {

// An example has 2^32 blocks of the engine, 2^33 draws of 64 bits, before it reaches the numbers of its next epoch.
constexpr int kEpochShift = 32;

}  // namespace

SampleRandom::SampleRandom(uint64_t seed, int64_t epoch, int64_t index) {
  TORCH_CHECK_VALUE(epoch >= 0 && epoch < int64_t{1} << 32,
                    "[cohort] SampleRandom needs an epoch in [0, 2^32), but got ", epoch);
  TORCH_CHECK_VALUE(index >= 0, "[cohort] SampleRandom needs an index that is not negative, but got ", index);
  engine_ = at::philox_engine(seed, static_cast<uint64_t>(index), static_cast<uint64_t>(epoch) << kEpochShift);
}

uint64_t SampleRandom::bits() {
  const uint64_t low = engine_();
  return low | static_cast<uint64_t>(engine_()) << 32;
}

double SampleRandom::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double SampleRandom::uniform(double low, double high) { return low + uniform() * (high - low); }

int64_t SampleRandom::integer(int64_t low, int64_t high) {
  TORCH_CHECK_VALUE(low < high, "[cohort] SampleRandom::integer needs low < high, but got ", low, " and ", high);
  const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  // Draws a value again if it is in an incomplete round, as the first values would otherwise be more frequent.
  const uint64_t too_many = (UINT64_MAX - count + 1) % count;
  uint64_t value = bits();
  while (value < too_many) value = bits();
  return static_cast<int64_t>(static_cast<uint64_t>(low) + value % count);
}

double SampleRandom::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

// Marsaglia and Tsang, 2000. Returns the logarithm, as numbers for a small alpha are too small for a double.
double SampleRandom::log_gamma_draw(double alpha) {
  if (alpha < 1.0) return log_gamma_draw(alpha + 1.0) + std::log(1.0 - uniform()) / alpha;
  const double d = alpha - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = normal();
    const double cube_root = 1.0 + c * x;
    if (cube_root <= 0.0) continue;
    const double v = cube_root * cube_root * cube_root;
    if (std::log(1.0 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

double SampleRandom::beta(double alpha) {
  TORCH_CHECK_VALUE(alpha > 0, "[cohort] SampleRandom::beta needs alpha > 0, but got ", alpha);
  const double x = log_gamma_draw(alpha);
  const double y = log_gamma_draw(alpha);
  return 1.0 / (1.0 + std::exp(y - x));
}

std::vector<int64_t> SampleRandom::permutation(int64_t count) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = count - 1; i > 0; --i) std::swap(order[i], order[integer(0, i + 1)]);
  return order;
}

at::Tensor SampleRandom::normal_tensor(at::IntArrayRef sizes) {
  at::Tensor result = at::empty(sizes, at::kFloat);
  auto* values = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); ++i) values[i] = static_cast<float>(normal());
  return result;
}

}  // namespace cohort::data
