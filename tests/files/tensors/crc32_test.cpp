#include "cohort/files/tensors/elements/crc32.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>

#include "cohort/files/tensors/elements/crc32_wide.h"

namespace cohort::files {
namespace {

std::string random_bytes(size_t num_bytes) {
  std::mt19937 random(5);
  std::string bytes(num_bytes, 0);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

uint32_t of_zlib(std::string_view bytes, uint32_t before) {
  return static_cast<uint32_t>(
      ::crc32(before, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

// Every rest behind the blocks that are folded, and every alignment.
TEST(Crc32, IsZlibs) {
  const std::string bytes = random_bytes(6000);
  for (size_t begin = 0; begin < 70; ++begin) {
    for (size_t size = begin % 7; begin + size <= bytes.size(); size += size < 1500 ? 13 : 257) {
      const std::string_view part(bytes.data() + begin, size);
      const auto before = static_cast<uint32_t>(begin * 0x9E3779B9);
      ASSERT_EQ(crc32(part, before), of_zlib(part, before)) << "bytes " << begin << " to " << begin + size;
    }
  }
  if (!can_fold_crc32()) GTEST_LOG_(INFO) << "this processor has no wide carry-less multiplication";
}

TEST(Crc32, PartsJoin) {
  const std::string text = "123456789";
  EXPECT_EQ(crc32(text), 0xCBF43926u);
  EXPECT_EQ(crc32(text.substr(4), crc32(text.substr(0, 4))), crc32(text));
  EXPECT_EQ(join_crc32(crc32(text.substr(0, 4)), crc32(text.substr(4)), 5), crc32(text));
}

}  // namespace
}  // namespace cohort::files
