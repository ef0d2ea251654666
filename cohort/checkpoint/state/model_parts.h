/// A model's tensors as its ranks hold them: behind distributed_state.h.
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
  at::Tensor tensor;  ///< this rank's shard, its part of a DTensor or of a layer's, or the module's own tensor
  std::optional<ShardSpec> spec;  ///< of a shard, or part
  std::vector<int64_t> sizes;     ///< of the whole
  bool is_parameter = false;
  bool is_frozen = false;                     ///< a parameter that requires no gradient
  std::vector<std::string> other_names = {};  ///< of a parameter that other stages have, too (tied_names.h)
};

class ModelParts {
 public:
  explicit ModelParts(const torch::nn::Module& model);

  /// In the order of state_dict().
  const std::vector<HeldTensor>& tensors() const { return tensors_; }
  /// Null: the model has no parameter that is, or whose shard is, this tensor.
  const HeldTensor* find(const at::Tensor& parameter) const;
  /// As `find`. Throws c10::ValueError, which says where `parameter` stands in an optimizer.
  const HeldTensor& at(const at::Tensor& parameter, size_t group, size_t place) const;
  const Names& names() const { return names_; }
  /// Of its first tensor.
  c10::Device device() const { return tensors_.empty() ? c10::Device(c10::kCPU) : tensors_.front().tensor.device(); }

 private:
  std::vector<HeldTensor> tensors_;
  Names names_;
  std::unordered_map<const void*, size_t> places_;
};

/// `tensor`, or this rank's part of a DTensor with its description; `held`: of which it is a value of the same sizes, such as a
/// moment.
StateValue held_value(const at::Tensor& tensor, const HeldTensor& held);

/// This rank's part of `whole`: a view where it has no gaps.
at::Tensor part_of(const at::Tensor& whole, const ShardSpec& spec);

/// What a rank needs of a value.
struct Wanted {
  std::optional<ShardSpec> spec = {};
  std::vector<int64_t> sizes = {};  ///< of the whole; only with a spec
  bool is_needed = true;
};
using WantedValues = std::unordered_map<std::string, Wanted>;

/// `value` as this rank holds it. Throws c10::ValueError where it is a part of another kind than `wanted`; sizes that differ are
/// left as they are.
StateValue localized(const std::string& key, const StateValue& value, const Wanted& wanted);

/// Collective: rank 0's `state`, of which each rank keeps what it wants; keys that `wanted` does not have are kept whole. Rank 0
/// must have no parts.
ShardedStateDict broadcast_state(const ShardedStateDict& state, const WantedValues& wanted, c10::Device device,
                                 const Group& group);

/// Whole values on every rank, on the CPU or on rank 0 alone, as `options` say. `varies_on`: ranks may have different keys; what
/// some of them lack travels through this device. Collective if full_state_dict is set.
ShardedStateDict gathered(ShardedStateDict state, const StateDictOptions& options,
                          std::optional<c10::Device> varies_on = std::nullopt);

/// Null: there is no group, and this process stands for rank 0.
Group group_of(const StateDictOptions& options);

}  // namespace cohort::checkpoint::detail
