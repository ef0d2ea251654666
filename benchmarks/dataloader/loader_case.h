/// A case of `dataloader` for one side.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::bench {

struct LoaderCase {
  /// "cifar", "cifar-plain" or "jpeg"; "cifar-floor" and "jpeg-floor" are their unavoidable work.
  std::string name;
  int num_workers = 0;
  int64_t batch_size = 1;
  /// Only for the CIFAR-like datasets.
  int64_t num_images = 0;
  /// The folder of the JPEGs; "-" without one.
  std::string folder;
};

}  // namespace cohort::bench
