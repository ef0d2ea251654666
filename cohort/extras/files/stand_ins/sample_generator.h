/// SampleGenerator: random numbers that are the same on every machine, and for one sample whatever the others are.
#pragma once

#include <cmath>
#include <cstdint>

namespace cohort::files {

/// SplitMix64 (Steele, Lea and Flood 2014), started from a seed, a part of a set and the index of a sample in it.
class SampleGenerator {
 public:
  SampleGenerator(uint64_t seed, uint64_t part, uint64_t index) : state_(seed) {
    state_ = next() ^ (part * 0x9e3779b97f4a7c15U);
    state_ = next() ^ index;
    next();
  }

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// In [low, high).
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }
  /// In [0, count).
  int below(int count) { return static_cast<int>(next() % static_cast<uint64_t>(count)); }

 private:
  uint64_t state_;
};

}  // namespace cohort::files
