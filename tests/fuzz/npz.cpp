// .npz archives: every member is read.
#include "cohort/extras/files/arrays/npz.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto npz = files::NpzFile::view("a.npz", fuzz::text_of(data, size));
  if (!npz) return 0;
  size_t num_read = 0;
  for (const auto& name : npz->names()) {
    if (++num_read > 20) break;  // an archive may name the same bytes again and again
    const auto array = npz->read(name);
    if (!array) continue;
    FUZZ_CHECK(files::num_bytes_of(array->dtype, array->shape) == array->num_bytes);
    FUZZ_CHECK(array->num_bytes <= size * 1032 + 1032);
  }
  return 0;
}
