/// Stand-ins for data sets: small ones in the real formats, made here. Their labels can be learnt from the samples, so they serve
/// demos and tests where there is no network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::files {

struct StandIn {
  const char* name;
  const char* summary;
  /// Below the root folder, where the real set would be.
  const char* folder;
  /// For training (for "tokens" and texts: bytes); a fifth as many more for testing.
  int64_t default_samples;
  int64_t min_samples;
};

const std::vector<StandIn>& stand_ins();

struct StandInOptions {
  /// 0: the set's own default.
  int64_t num_samples = 0;
  /// The same seed gives the same bytes on every machine. The first samples do not depend on how many there are.
  uint64_t seed = 0;
  /// CIFAR only: batches as Python's pickle reads them, instead of binary records.
  bool pickled = false;
  /// Replaces a folder that is there.
  bool overwrite = false;
  /// True ends the work early, with an error.
  std::function<bool()> stops;
};

/// Returns the folder, which appears whole or not at all; its files can be read by their owner only. Errors: an unknown name
/// (those that are known are named), too few samples, a folder that is there, one that cannot be written.
base::Result<std::string> make_stand_in(const std::string& name, const std::string& root,
                                        const StandInOptions& options = {});

}  // namespace cohort::files
