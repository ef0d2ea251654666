/// Reads the weights in a file of any program.
#pragma once

#include <string>
#include <unordered_set>

#include "cohort/base/error/result.h"
#include "cohort/checkpoint/optimizer/named_tensors.h"

namespace cohort::models {

struct WeightFile {
  /// The key of the dict that was read. Empty if the file itself is that dict.
  std::string nested_in;
  /// The weights on the CPU, with names without the prefixes of wrappers.
  checkpoint::StateDict weights;
};

/// `own`: the model's names, which tell a dict "model" from a module of that name. Errors: the file cannot be read, has no
/// tensors, or claims to have more than its size allows.
base::Result<WeightFile> read_weight_file(const std::string& path, const std::unordered_set<std::string>& own,
                                          bool use_ema);

}  // namespace cohort::models
