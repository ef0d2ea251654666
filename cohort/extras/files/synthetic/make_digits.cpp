// Synthetic MNIST, and datasets in its format: drawn digits.
#include "cohort/extras/files/synthetic/drawing.h"
#include "cohort/extras/files/synthetic/formats.h"
#include "cohort/extras/files/synthetic/making.h"

namespace cohort::files {
namespace {

constexpr int kDigitSide = 28;

base::Result<void> put_digits(const Making& making, SetPart part, const std::string& prefix) {
  const int64_t count = making.num_samples(part);
  std::string images;
  std::string labels;
  for (int64_t i = 0; i < count; ++i) {
    auto random = making.sample(part, i);
    if (!random) return Making::stopped();
    const int digit = random->below(10);
    const auto pixels = draw_digit(digit, kDigitSide, *random);
    images.append(pixels.begin(), pixels.end());
    labels += static_cast<char>(digit);
  }
  const auto number = static_cast<uint32_t>(count);
  if (auto put = making.put(prefix + "-images-idx3-ubyte", idx_bytes({number, kDigitSide, kDigitSide}, images)); !put) {
    return put;
  }
  return making.put(prefix + "-labels-idx1-ubyte", idx_bytes({number}, labels));
}

}  // namespace

base::Result<void> make_mnist(const Making& making) {
  if (auto put = put_digits(making, SetPart::kTrain, "train"); !put) return put;
  return put_digits(making, SetPart::kTest, "t10k");
}

}  // namespace cohort::files
