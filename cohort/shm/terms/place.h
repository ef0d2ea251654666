/// Place: the position of bytes in memory that several ranks map.
#pragma once

#include <cstdint>

namespace cohort::shm {

/// The group's region (from 1; 0 means none; or kInArena), and the distance from the begin of its rank's part.
struct Place {
  static constexpr uint64_t kInArena = ~uint64_t{0};
  uint64_t region = 0;
  uint64_t offset = 0;
  bool is_shared() const { return region != 0; }
};

}  // namespace cohort::shm
