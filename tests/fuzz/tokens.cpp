// Files of tokens: the first byte says the format.
#include <vector>

#include "cohort/files/tokens/token_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  if (size == 0) return 0;
  const auto format = static_cast<files::TokenFormat>(data[0] % 4);
  const auto bytes = fuzz::text_of(data + 1, size - 1);
  const auto file = files::TokenFile::read_header(files::RandomAccessFile::view("a.bin", bytes), format);
  if (!file) {
    FUZZ_CHECK(file.error().describe().size() < 2000);
    return 0;
  }
  FUZZ_CHECK(file->offset_of(file->size()) == bytes.size());
  std::vector<int64_t> all(static_cast<size_t>(file->size()));
  FUZZ_CHECK(file->read(0, all).ok());
  for (int64_t i = 0; i < file->size(); i += 1 + file->size() / 20) {
    std::vector<int64_t> one(1);
    FUZZ_CHECK(file->read(i, one).ok() && one[0] == all[static_cast<size_t>(i)]);
  }
  return 0;
}
