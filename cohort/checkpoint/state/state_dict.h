/// A module's state by name, and back. Names, order and error texts are PyTorch's (torch/nn/modules/module.py).
///
/// Wrappers (DistributedDataParallel, FullySharded, DataParallel, ActivationCheckpoint) leave no trace in names. For modules
/// whose parameters ranks share out: distributed_state.h.
/// Thread-safety: none; no other thread may use the module meanwhile.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/checkpoint/state/named_tensors.h"
#include "cohort/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace cohort::checkpoint {

/// Parameters and buffers of the module and all below it, without the buffers that mark_non_persistent (persistence.h) has
/// marked. The tensors share memory with the module's own, without autograd; clone() what must not change as training goes on.
/// Throws c10::Error for a parameter that fully_shard has let go.
COHORT_API StateDict state_dict(const torch::nn::Module& module);

/// What Python's state_dict()._metadata says of each module, itself, "", first: {{"", 1}, {"layers.0", 2}, ...}.
COHORT_API std::vector<std::pair<std::string, int64_t>> module_versions(const torch::nn::Module& module);
/// The same as the dict that it is in Python: {"": {"version": 1}, "layers.0": {"version": 2}, ...}
COHORT_API c10::IValue state_dict_metadata(const torch::nn::Module& module);

struct LoadStateDictOptions {
  /// Throw unless the names are exactly the module's.
  bool strict = true;
  /// As state_dict_metadata gives it, or None. As in PyTorch a batch norm whose version is below 2, or not known, may lack
  /// num_batches_tracked.
  c10::IValue metadata = {};
};

struct IncompatibleKeys {
  std::vector<std::string> missing_keys = {};
  std::vector<std::string> unexpected_keys = {};
};

/// Copies the values into the module's own tensors, converting dtype and device. Names as Python's wrappers write them are
/// accepted: with the prefix "module." before all of them, or with "_orig_mod.", "_fsdp_wrapped_module." and
/// "_checkpoint_wrapped_module." anywhere.
/// Throws c10::Error with PyTorch's text for missing or unexpected names (if strict) and for shapes that differ, and a hint
/// where two names are alike; c10::ValueError for a module that fully_shard has sharded. The module is then unchanged, where
/// PyTorch has copied what fitted.
COHORT_API IncompatibleKeys load_state_dict(torch::nn::Module& module, const StateDict& state,
                                            LoadStateDictOptions options = {});

}  // namespace cohort::checkpoint
