#include "cohort/extras/data/transforms/image.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <limits>

namespace cohort::data {

void check_image(const at::Tensor& image, const char* who) {
  TORCH_CHECK_TYPE(image.defined(), "[cohort] ", who, " needs an image, but got a tensor that is undefined");
  TORCH_CHECK_TYPE(image.dim() == 3 && image.numel() > 0 && image.is_cpu() &&
                       (image.scalar_type() == at::kByte || image.is_floating_point()),
                   "[cohort] ", who,
                   " needs an image [channels, height, width] of uint8 or a floating dtype on the CPU, but got ",
                   image.scalar_type(), " ", image.sizes(), " on ", image.device());
}

void check_sides(std::initializer_list<int64_t> sides, const char* who) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  for (const int64_t side : sides) {
    TORCH_CHECK_VALUE(side <= kMost, "[cohort] ", who, " needs sides of at most ", kMost, " pixels, but got ", side);
  }
}

int64_t python_round(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

}  // namespace cohort::data
