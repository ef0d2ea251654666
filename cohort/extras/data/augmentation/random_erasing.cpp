#include "cohort/extras/data/augmentation/random_erasing.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <utility>

#include "cohort/extras/data/transforms/image.h"

namespace cohort::data {
namespace {

constexpr int kErasingTries = 10;

}  // namespace

RandomErasing::RandomErasing(RandomErasingOptions options) : options_(std::move(options)) {
  const auto& [p, scale, ratio, value] = options_;
  TORCH_CHECK_VALUE(scale[0] <= scale[1] && 0 < ratio[0] && ratio[0] <= ratio[1],
                    "Scale and ratio should be of kind (min, max)");
  TORCH_CHECK_VALUE(scale[0] >= 0 && scale[1] <= 1, "Scale should be between 0 and 1");
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "Random erasing probability should be between 0 and 1");
}

at::Tensor RandomErasing::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image(image, "RandomErasing");
  const auto num_values = static_cast<int64_t>(options_.value.size());
  TORCH_CHECK_VALUE(num_values <= 1 || num_values == image.size(0),
                    "If value is a sequence, it should have either a single value or ", image.size(0),
                    " (number of input channels)");
  TORCH_CHECK_TYPE(num_values > 0 || image.is_floating_point(),
                   "[cohort] RandomErasing paints normal numbers into floating images only, not ", image.scalar_type());
  if (!random.chance(options_.p)) return image;
  const int64_t image_height = height_of(image);
  const int64_t image_width = width_of(image);
  for (int i = 0; i < kErasingTries; ++i) {
    const double area =
        static_cast<double>(image_height * image_width) * random.uniform(options_.scale[0], options_.scale[1]);
    const double ratio = std::exp(random.uniform(std::log(options_.ratio[0]), std::log(options_.ratio[1])));
    const int64_t height = python_round(std::sqrt(area * ratio));
    const int64_t width = python_round(std::sqrt(area / ratio));
    if (height >= image_height || width >= image_width) continue;
    const int64_t top = random.integer(0, image_height - height + 1);
    const int64_t left = random.integer(0, image_width - width + 1);
    at::Tensor result = image.clone();
    erase(result.narrow(1, top, height).narrow(2, left, width), random);
    return result;
  }
  return image;
}

void RandomErasing::erase(const at::Tensor& part, SampleRandom& random) const {
  if (options_.value.empty()) {
    part.copy_(random.normal_tensor(part.sizes()));
  } else {
    part.copy_(at::tensor(options_.value, at::kDouble).view({-1, 1, 1}));
  }
}

}  // namespace cohort::data
