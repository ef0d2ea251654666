#include "cohort/shm/plan/windows.h"

#include <gtest/gtest.h>

namespace cohort::shm {
namespace {

TEST(Windows, CoverEveryElementOnce) {
  for (const size_t count : {0, 1, 15, 16, 17, 1000, 4099}) {
    for (const size_t largest : {1, 16, 1000}) {
      const Windows windows{count, largest};
      size_t next = 0;
      for (size_t i = 0; i < windows.size(); ++i) {
        EXPECT_EQ(windows[i].begin, next);
        EXPECT_GT(windows[i].count, 0u);
        EXPECT_LE(windows[i].count, largest);
        next = windows[i].end();
      }
      EXPECT_EQ(next, count);
      EXPECT_EQ(windows[windows.size()].count, 0u);
      EXPECT_EQ(windows[windows.size() + 5].count, 0u);
    }
  }
}

TEST(Chunks, CoverAWindowOnceInWholeCacheLines) {
  for (const int world_size : {1, 2, 3, 8, 40}) {
    for (const size_t element_size : {1, 2, 8}) {
      for (const size_t count : {0, 1, 7, 64, 1000, 4099}) {
        const Range window{128, count};
        size_t next = window.begin;
        for (int rank = 0; rank < world_size; ++rank) {
          const auto chunk = chunk_of(window, rank, world_size, element_size);
          EXPECT_EQ(chunk.begin, next);
          EXPECT_TRUE(chunk.end() == window.end() || chunk.count * element_size % 64 == 0);
          next = chunk.end();
        }
        EXPECT_EQ(next, window.end());
      }
    }
  }
}

TEST(Chunks, AreEqualButForTheLast) {
  EXPECT_EQ(chunk_of({0, 1024}, 0, 4, 4).count, 256u);
  EXPECT_EQ(chunk_of({0, 1000}, 0, 4, 4).count, 256u);
  EXPECT_EQ(chunk_of({0, 1000}, 3, 4, 4).count, 232u);
  EXPECT_EQ(chunk_of({0, 20}, 1, 4, 4).count, 4u);
  EXPECT_EQ(chunk_of({0, 20}, 2, 4, 4).count, 0u);
}

}  // namespace
}  // namespace cohort::shm
