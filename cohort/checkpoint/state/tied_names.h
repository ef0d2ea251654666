/// Parameters that a model has under several names, where a stage of a pipeline has one of them by itself.
///
///     // The last stage, whose weight is the first one's embedding:
///     cohort::checkpoint::tie_names(head->weight, {"wte.weight", "lm_head.weight"});
///
/// A whole model with tied weights trains one tensor: its checkpoint has one state of the optimizer, under the first name, and
/// some files have the tensor itself under one name only. Where what is loaded (load_sharded, set_model_state_dict,
/// set_optimizer_state_dict, set_state_dict) has nothing under a stage's own name, the stage takes what stands under another one.
/// What is saved has all of a stage's under its own name. models::split_gpt ties the names of a model whose weights are tied.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// `names`: those of `parameter` in the whole model's state dict, this stage's own among them, in the order in which they are
/// looked for. A module that contains the stage may put a prefix before all of them. `parameter`: the stage's own or, if
/// fully_shard has taken the stage, its shard. As mark_non_persistent's, the names are the tensor's own: they stay when the
/// module is wrapped, moved to a device or converted, and replace those that it had. Throws c10::ValueError for fewer than two
/// names, and for an undefined tensor. Thread-safe.
COHORT_API void tie_names(const at::Tensor& parameter, std::vector<std::string> names);

namespace detail {

/// The other names of what a module has as `name`.
std::vector<std::string> other_names(const at::Tensor& parameter, const std::string& name);

}  // namespace detail

}  // namespace cohort::checkpoint
