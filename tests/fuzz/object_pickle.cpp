// Objects from other ranks. Whatever they hold, nothing is executed: a value, or a c10::ValueError.
#include "cohort/comm/pickle/pickle.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "tests/fuzz/fuzz.h"

namespace cohort::comm {
namespace {

using c10::IValue;

void check_tensor(const at::Tensor& tensor) {
  FUZZ_CHECK(tensor.defined() && tensor.storage_offset() >= 0);
  if (tensor.numel() == 0) return;
  auto last = static_cast<unsigned __int128>(tensor.storage_offset());
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    FUZZ_CHECK(tensor.size(i) > 0 && tensor.stride(i) >= 0);
    last += static_cast<unsigned __int128>(tensor.size(i) - 1) * static_cast<unsigned __int128>(tensor.stride(i));
  }
  FUZZ_CHECK((last + 1) * tensor.element_size() <= tensor.storage().nbytes());
}

// Values that share others may be traversed in exponentially many ways: `steps` bounds them.
void check_value(const IValue& value, int depth, int* steps) {
  FUZZ_CHECK(depth <= kMaxPickleDepth + 1);
  if (--*steps < 0) return;
  if (value.isTensor()) {
    check_tensor(value.toTensor());
  } else if (value.isTuple()) {
    for (const auto& item : value.toTupleRef().elements()) check_value(item, depth + 1, steps);
  } else if (value.isList()) {
    for (const IValue& item : value.toList()) check_value(item, depth + 1, steps);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) check_value(entry.value(), depth + 1, steps);
  } else if (value.isCapsule()) {
    FUZZ_CHECK(is_bytes(value));
  }
}

}  // namespace
}  // namespace cohort::comm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  try {
    const auto value = comm::unpickle(fuzz::text_of(data, size));
    int steps = 10'000;
    comm::check_value(value, 0, &steps);
  } catch (const c10::ValueError&) {
  }
  return 0;
}
