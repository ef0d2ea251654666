/// A module's state by name, and back. Names, order and error texts are PyTorch's (torch/nn/modules/module.py).
///
/// Thread-safety: none; no other thread may use the module meanwhile.
#pragma once

#include <string>
#include <vector>

#include "cohort/checkpoint/named_tensors.h"
#include "cohort/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace cohort::checkpoint {

/// Parameters and buffers of the module and all below it. The tensors share memory with the module's own, without
/// autograd; clone() what must not change as training goes on.
COHORT_API StateDict state_dict(const torch::nn::Module& module);

struct LoadStateDictOptions {
  /// Throw unless the names are exactly the module's.
  bool strict = true;
};

struct IncompatibleKeys {
  std::vector<std::string> missing_keys = {};
  std::vector<std::string> unexpected_keys = {};
};

/// Copies the values into the module's own tensors, converting dtype and device. Names that all carry the prefix
/// "module.", as Python's DistributedDataParallel writes them, are accepted.
/// Throws c10::Error with PyTorch's text for missing or unexpected names (if strict) and for shapes that differ. The
/// module is then unchanged, where PyTorch has copied what fitted.
COHORT_API IncompatibleKeys load_state_dict(torch::nn::Module& module, const StateDict& state,
                                            LoadStateDictOptions options = {});

}  // namespace cohort::checkpoint
