/// StateValue: a value of a state dict in which ranks have shards of tensors, and values that are not tensors. State-dict
/// helpers, sharded checkpoints and the Checkpointer use it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/ordered_dict.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/mesh/shard_spec.h"

namespace cohort::checkpoint {

/// The keys of a value whose parameter other stages of a pipeline also have (tied_names.h). A prefix that is added to `own` must
/// be added to all of them.
struct TiedKeys {
  /// The key from get_state_dict. Empty if the parameter is not tied.
  std::string own = {};
  /// The keys under the other names. If the checkpoint lacks `own`, load_sharded reads the first of these that it has.
  std::vector<std::string> others = {};
};

/// One of three: a full tensor, which is the same on every rank that has the key; this rank's shard of a tensor; a plain value.
struct StateValue {
  StateValue() = default;
  // Implicit on purpose: state.insert("weight", tensor).
  StateValue(at::Tensor full) : tensor(std::move(full)) {}
  StateValue(at::Tensor part, mesh::ShardSpec part_of) : tensor(std::move(part)), spec(std::move(part_of)) {}
  explicit StateValue(c10::IValue plain) : value(std::move(plain)) {}

  bool is_tensor() const { return tensor.defined(); }
  bool is_shard() const { return spec.has_value(); }

  /// Undefined for a plain value. Shares memory with the tensor from which it was made.
  at::Tensor tensor = {};
  /// Describes the full tensor and this rank's shard of it. Absent if `tensor` is a full tensor.
  std::optional<mesh::ShardSpec> spec = {};
  /// None, bool, int, float, complex, str, bytes (comm/pickle/pickle.h), and lists, tuples and dicts of them.
  c10::IValue value = {};
  /// Set for any of the three.
  TiedKeys tied = {};
};

/// Keys are canonical names with dots, as torch/distributed/checkpoint flattens nested dictionaries: "model.layer1.weight",
/// "optim.state.layer1.weight.exp_avg". A key need not be on every rank.
using ShardedStateDict = torch::OrderedDict<std::string, StateValue>;

}  // namespace cohort::checkpoint
