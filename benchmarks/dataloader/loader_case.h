/// What a side of `dataloader` is asked to read.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::bench {

struct LoaderCase {
  /// "cifar", "cifar-plain" or "jpeg"; "cifar-floor" and "jpeg-floor" are what none of them can do without.
  std::string name;
  int num_workers = 0;
  int64_t batch_size = 1;
  /// Of the CIFAR-like sets.
  int64_t num_images = 0;
  /// Of the JPEGs; "-": there is none.
  std::string folder;
};

}  // namespace cohort::bench
