// CIFAR's pickled batches. Whatever they hold, nothing is executed: images and labels that fit together, or a c10::Error.
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "cohort/extras/data/datasets/cifar_batch.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto bytes = fuzz::text_of(data, size);
  try {
    const auto [images, labels] = data::detail::read_pickled_batch("batch", bytes, "labels", 10);
    FUZZ_CHECK(images.scalar_type() == at::kByte && images.is_contiguous() && images.size(1) == 3072);
    FUZZ_CHECK(images.size(0) == labels.size(0) && images.nbytes() <= size);
    for (int64_t i = 0; i < labels.size(0); ++i) {
      FUZZ_CHECK(labels.const_data_ptr<int64_t>()[i] >= 0 && labels.const_data_ptr<int64_t>()[i] < 10);
    }
  } catch (const c10::Error&) {
  }
  try {
    FUZZ_CHECK(data::detail::read_pickled_names("meta", bytes, "label_names", 2).size() == 2);
  } catch (const c10::Error&) {
  }
  return 0;
}
