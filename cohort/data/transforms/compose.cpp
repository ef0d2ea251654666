#include "cohort/data/transforms/compose.h"

#include <c10/util/Exception.h>

#include <utility>

namespace cohort::data {

Compose::Compose(std::vector<Transform> transforms) : transforms_(std::move(transforms)) {}

at::Tensor Compose::operator()(const at::Tensor& image, SampleRandom& random) const {
  at::Tensor result = image;
  for (const Transform& transform : transforms_) result = transform(result, random);
  return result;
}

RandomChoice::RandomChoice(std::vector<Transform> transforms) : transforms_(std::move(transforms)) {
  TORCH_CHECK_VALUE(!transforms_.empty(), "RandomChoice needs at least one transform");
}

at::Tensor RandomChoice::operator()(const at::Tensor& image, SampleRandom& random) const {
  return transforms_[random.integer(0, static_cast<int64_t>(transforms_.size()))](image, random);
}

RandomApply::RandomApply(std::vector<Transform> transforms, double p) : transforms_(std::move(transforms)), p_(p) {}

at::Tensor RandomApply::operator()(const at::Tensor& image, SampleRandom& random) const {
  return random.chance(p_) ? transforms_(image, random) : image;
}

}  // namespace cohort::data
