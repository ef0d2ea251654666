#include "cohort/extras/data/transforms/image.h"

#include <c10/util/Exception.h>

#include <cmath>

namespace cohort::data {

void check_image(const at::Tensor& image, const char* who) {
  TORCH_CHECK_TYPE(image.defined(), who, " needs an image, but got a tensor that is undefined");
  TORCH_CHECK_TYPE(image.dim() == 3 && image.numel() > 0 && image.is_cpu() &&
                       (image.scalar_type() == at::kByte || image.is_floating_point()),
                   who, " needs an image [channels, height, width] of uint8 or a floating dtype on the CPU, but got ",
                   image.scalar_type(), " ", image.sizes(), " on ", image.device());
}

int64_t python_round(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

}  // namespace cohort::data
