// .npy files: what is read is written again, and is the same then.
#include "cohort/extras/files/arrays/npy.h"

#include "cohort/extras/files/arrays/npy_header.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto file = files::RandomAccessFile::view("a.npy", fuzz::text_of(data, size));
  const auto layout = files::read_npy_layout(file);
  if (!layout) {
    FUZZ_CHECK(layout.error().describe().size() < 2000);
    return 0;
  }
  FUZZ_CHECK(layout->offset + layout->num_bytes == size);
  const auto array = files::read_array(file, *layout);
  FUZZ_CHECK(array.ok());
  FUZZ_CHECK(files::num_bytes_of(array->dtype, array->shape) == array->num_bytes);
  const auto again = files::parse_npy_header(files::format_npy_header(array->dtype, array->shape));
  FUZZ_CHECK(again && again.layout().dtype == array->dtype && again.layout().shape == array->shape);
  return 0;
}
