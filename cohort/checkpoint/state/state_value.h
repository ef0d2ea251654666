/// What a state dict holds where ranks have parts of tensors, and values that are no tensors: the common language of state-dict
/// helpers, sharded checkpoints and the Checkpointer.
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

/// The keys of a value whose parameter other stages of a pipeline have, too (tied_names.h). Whoever puts a prefix before `own`
/// means it before all of them.
struct TiedKeys {
  /// As get_state_dict gives it; empty: the parameter is not tied.
  std::string own = {};
  /// Under the other names: load_sharded reads the first of them that is there where the checkpoint lacks `own`.
  std::vector<std::string> others = {};
};

/// One of three: a whole tensor, which every rank that has the key holds alike; this rank's part of a tensor; a plain value.
struct StateValue {
  StateValue() = default;
  // Implicit on purpose: state.insert("weight", tensor).
  StateValue(at::Tensor whole) : tensor(std::move(whole)) {}
  StateValue(at::Tensor part, ShardSpec part_of) : tensor(std::move(part)), spec(std::move(part_of)) {}
  explicit StateValue(c10::IValue plain) : value(std::move(plain)) {}

  bool is_tensor() const { return tensor.defined(); }
  bool is_part() const { return spec.has_value(); }

  /// Undefined for a plain value. Shares memory with what it was made from.
  at::Tensor tensor = {};
  /// Of which tensor `tensor` is a part, and which one.
  std::optional<ShardSpec> spec = {};
  /// None, bool, int, float, complex, str, bytes (comm/pickle/pickle.h), and lists, tuples and dicts of them.
  c10::IValue value = {};
  /// Beside any of the three.
  TiedKeys tied = {};
};

/// Keys are canonical names with dots, as torch/distributed/checkpoint flattens nested dictionaries: "model.layer1.weight",
/// "optim.state.layer1.weight.exp_avg". Not every rank need have every key.
using ShardedStateDict = torch::OrderedDict<std::string, StateValue>;

}  // namespace cohort::checkpoint
