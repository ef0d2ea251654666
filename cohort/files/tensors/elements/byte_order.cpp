#include "cohort/files/tensors/elements/byte_order.h"

#include <algorithm>

namespace cohort::files {

void swap_byte_order(std::span<char> bytes, Dtype dtype) {
  const bool is_complex = dtype == Dtype::kComplex32 || dtype == Dtype::kComplex64 || dtype == Dtype::kComplex128;
  const auto width = static_cast<size_t>(info_of(dtype).size) / (is_complex ? 2 : 1);
  if (width == 1) return;
  for (size_t place = 0; place + width <= bytes.size(); place += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(place),
                 bytes.begin() + static_cast<std::ptrdiff_t>(place + width));
  }
}

}  // namespace cohort::files
