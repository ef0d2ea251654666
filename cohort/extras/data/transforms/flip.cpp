#include "cohort/extras/data/transforms/flip.h"

#include <ATen/ops/flip.h>

#include "cohort/extras/data/transforms/image.h"

namespace cohort::data {

at::Tensor RandomHorizontalFlip::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image(image, "RandomHorizontalFlip");
  return flips(random) ? at::flip(image, {2}) : image;
}

at::Tensor RandomVerticalFlip::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image(image, "RandomVerticalFlip");
  return flips(random) ? at::flip(image, {1}) : image;
}

}  // namespace cohort::data
