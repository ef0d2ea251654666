/// SampleGenerator: random numbers of one sample, which do not depend on other samples or on the machine.
#pragma once

#include <cmath>
#include <cstdint>

namespace cohort::files {

/// SplitMix64 (Steele, Lea and Flood 2014), seeded with a seed, a split of a dataset and the index of a sample in it.
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
  /// Returns a number in [low, high).
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Returns a number in [0, count).
  int below(int count) { return static_cast<int>(next() % static_cast<uint64_t>(count)); }

 private:
  uint64_t state_;
};

}  // namespace cohort::files
