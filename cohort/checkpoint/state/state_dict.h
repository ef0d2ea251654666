/// A module's state by name, and back. Names, order and error texts are PyTorch's (torch/nn/modules/module.py).
///
/// Wrappers (DistributedDataParallel, FullySharded, DataParallel, ActivationCheckpoint) do not appear in names. For modules
/// whose parameters are sharded: distributed_state.h.
/// Thread-safety: none; no other thread may use the module meanwhile.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/checkpoint/optimizer/named_tensors.h"
#include "cohort/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace cohort::checkpoint {

/// Returns parameters and buffers of the module and its submodules, without buffers marked by mark_non_persistent
/// (persistence.h). The tensors share memory with the module's own, without autograd; clone() those that must not change in
/// training.
/// Throws c10::Error for a parameter that fully_shard has freed.
COHORT_API StateDict state_dict(const torch::nn::Module& module);

/// Returns the module versions in Python's state_dict()._metadata, the module itself, "", first: {{"", 1}, {"layers.0", 2}, ...}.
COHORT_API std::vector<std::pair<std::string, int64_t>> module_versions(const torch::nn::Module& module);
/// Returns the same as Python's dict: {"": {"version": 1}, "layers.0": {"version": 2}, ...}
COHORT_API c10::IValue state_dict_metadata(const torch::nn::Module& module);

struct LoadStateDictOptions {
  /// If true, throw unless the names are exactly the module's.
  bool strict = true;
  /// A result of state_dict_metadata, or None. As in PyTorch, a batch norm whose version is below 2 or unknown may lack
  /// num_batches_tracked.
  c10::IValue metadata = {};
};

struct IncompatibleKeys {
  std::vector<std::string> missing_keys = {};
  std::vector<std::string> unexpected_keys = {};
};

/// Copies the values into the module's own tensors, and converts dtype and device. Accepts names as Python's wrappers write
/// them: with the prefix "module." before all of them, or with "_orig_mod.", "_fsdp_wrapped_module." and
/// "_checkpoint_wrapped_module." anywhere.
/// Throws c10::Error with PyTorch's text for missing or unexpected names (if strict) and for shapes that differ, and with a hint
/// if two names are similar; c10::ValueError for a module that fully_shard has sharded. If it throws, the module is unchanged;
/// PyTorch would have copied the values that fit.
COHORT_API IncompatibleKeys load_state_dict(torch::nn::Module& module, const StateDict& state,
                                            LoadStateDictOptions options = {});

}  // namespace cohort::checkpoint
