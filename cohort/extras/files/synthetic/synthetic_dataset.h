/// Synthetic datasets: small generated datasets in the formats of the official ones. Their labels can be learned from the
/// samples, so they serve for demos and tests without a network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::files {

struct SyntheticDataset {
  const char* name;
  const char* summary;
  /// Below the root folder, at the place of the official dataset.
  const char* folder;
  /// Samples for training (bytes for "tokens" and texts); for testing there are a fifth as many in addition.
  int64_t default_samples;
  int64_t min_samples;
};

const std::vector<SyntheticDataset>& synthetic_datasets();

struct SyntheticDatasetOptions {
  /// 0 means the dataset's own default.
  int64_t num_samples = 0;
  /// The same seed gives the same bytes on every machine. Samples do not depend on how many follow.
  uint64_t seed = 0;
  /// Only for CIFAR: writes batches for Python's pickle instead of binary records.
  bool pickled = false;
  /// Replaces an existing folder.
  bool overwrite = false;
  /// If it returns true, the work ends early with an error.
  std::function<bool()> stops;
};

/// Returns the folder, which appears complete or not at all; only its owner can read its files. Errors: an unknown name (lists
/// the known ones), too few samples, an existing folder, a folder that cannot be written.
base::Result<std::string> make_synthetic_dataset(const std::string& name, const std::string& root,
                                                 const SyntheticDatasetOptions& options = {});

}  // namespace cohort::files
