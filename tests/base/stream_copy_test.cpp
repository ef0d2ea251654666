#include "cohort/base/machine/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace cohort::base {
namespace {

TEST(StreamCopy, CopiesWhatMemcpyDoes) {
  std::vector<std::byte> from(1000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 7 % 251);
  for (size_t to_offset = 0; to_offset < 70; to_offset += 3) {
    for (size_t from_offset = 0; from_offset < 20; from_offset += 7) {
      for (const size_t size : {0, 1, 63, 64, 65, 127, 128, 500, 777}) {
        std::vector<std::byte> to(1000, std::byte{0xEE});
        stream_copy(to.data() + to_offset, from.data() + from_offset, size);
        for (size_t i = 0; i < to.size(); ++i) {
          const bool is_inside = i >= to_offset && i < to_offset + size;
          const std::byte expected = is_inside ? from[from_offset + i - to_offset] : std::byte{0xEE};
          ASSERT_EQ(to[i], expected) << "byte " << i << " of " << size << " at " << to_offset;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cohort::base
