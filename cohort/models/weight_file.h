/// The weights in a file, whoever wrote it.
#pragma once

#include <string>
#include <unordered_set>

#include "cohort/base/error/result.h"
#include "cohort/checkpoint/state/named_tensors.h"

namespace cohort::models {

struct WeightFile {
  /// The key of the dict in the file that is read; empty: the file is that dict.
  std::string nested_in;
  /// On the CPU, under names without what wrappers have put in.
  checkpoint::StateDict weights;
};

/// `own`: the model's names, which tell a dict "model" from a module of that name.
/// Errors: the file cannot be read, has no tensors, or says that it has more than its size allows.
base::Result<WeightFile> read_weight_file(const std::string& path, const std::unordered_set<std::string>& own,
                                          bool use_ema);

}  // namespace cohort::models
