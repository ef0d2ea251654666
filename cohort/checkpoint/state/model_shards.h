/// A model's tensors as each rank holds them; used by distributed_state.h.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/module_names.h"
#include "cohort/checkpoint/state/state_value.h"

namespace cohort::checkpoint::detail {

struct HeldTensor {
  std::string name;
  at::Tensor tensor;  ///< this rank's shard, its local tensor of a DTensor or a layer's, or the module's own tensor
  std::optional<mesh::ShardSpec> spec;  ///< of a shard or local tensor
  std::vector<int64_t> sizes;           ///< global sizes
  bool is_parameter = false;
  bool is_frozen = false;                     ///< whether it is a parameter that requires no gradient
  std::vector<std::string> other_names = {};  ///< of a parameter that other stages also have (tied_names.h)
};

class ModelShards {
 public:
  explicit ModelShards(const torch::nn::Module& model);

  /// Returns the tensors in the order of state_dict().
  const std::vector<HeldTensor>& tensors() const { return tensors_; }
  /// Returns null if no parameter of the model, nor a shard of one, is this tensor.
  const HeldTensor* find(const at::Tensor& parameter) const;
  /// As `find`, but throws c10::ValueError, which says where `parameter` is in an optimizer.
  const HeldTensor& at(const at::Tensor& parameter, size_t group, size_t place) const;
  const Names& names() const { return names_; }
  /// Returns the device of the model's first tensor.
  c10::Device device() const { return tensors_.empty() ? c10::Device(c10::kCPU) : tensors_.front().tensor.device(); }

 private:
  std::vector<HeldTensor> tensors_;
  Names names_;
  std::unordered_map<const void*, size_t> places_;
};

/// Returns `tensor`, or this rank's local tensor of a DTensor with its description. `held`: the parameter of which it is a value
/// of the same sizes, such as a moment.
StateValue held_value(const at::Tensor& tensor, const HeldTensor& held);

/// Returns this rank's shard of `full`: a view if it has no gaps.
at::Tensor local_shard_of(const at::Tensor& full, const mesh::ShardSpec& spec);

/// The value that a rank needs.
struct Wanted {
  std::optional<mesh::ShardSpec> spec = {};
  std::vector<int64_t> sizes = {};  ///< global sizes; only with a spec
  bool is_needed = true;
};
using WantedValues = std::unordered_map<std::string, Wanted>;

/// Returns `value` as this rank holds it. Throws c10::ValueError if it is another kind of shard than `wanted`. Does not check
/// sizes.
StateValue localized(const std::string& key, const StateValue& value, const Wanted& wanted);

/// Broadcasts rank 0's `state`; each rank keeps what it wants, and full tensors for keys that `wanted` does not have. Collective.
/// Rank 0 must have no shards.
ShardedStateDict broadcast_state(const ShardedStateDict& state, const WantedValues& wanted, c10::Device device,
                                 const Group& group);

/// Returns full tensors on every rank, on the CPU or only on rank 0, as `options` say. `varies_on`: ranks may have different
/// keys; values that some of them lack travel through this device. Collective if full_state_dict is set.
ShardedStateDict gathered(ShardedStateDict state, const StateDictOptions& options,
                          std::optional<c10::Device> varies_on = std::nullopt);

/// Returns null without a group; then this process counts as rank 0.
Group group_of(const StateDictOptions& options);

}  // namespace cohort::checkpoint::detail
