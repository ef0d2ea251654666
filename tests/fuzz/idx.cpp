// IDX files, plain and packed by gzip.
#include "cohort/extras/files/arrays/idx.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto array = files::read_idx(files::RandomAccessFile::view("a.idx", fuzz::text_of(data, size)));
  if (!array) {
    FUZZ_CHECK(array.error().describe().size() < 5000);  // up to 255 dimensions
    return 0;
  }
  FUZZ_CHECK(files::num_bytes_of(array->dtype, array->shape) == array->num_bytes);
  FUZZ_CHECK(array->num_bytes <= size * 1032);
  return 0;
}
