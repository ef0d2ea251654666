/// Parameters that a model has under several names, if a stage of a pipeline has only one of them.
///
///     // The last stage, whose weight is the first one's embedding:
///     cohort::checkpoint::tie_names(head->weight, {"wte.weight", "lm_head.weight"});
///
/// A full model with tied weights trains one tensor: its checkpoint has one optimizer state, under the first name, and
/// some files have the tensor itself under one name only. If a state that is loaded (load_sharded, set_model_state_dict,
/// set_optimizer_state_dict, set_state_dict) has nothing under a stage's own name, the stage takes the value under another name.
/// A save writes everything of a stage under its own name. models::split_gpt ties the names of a model whose weights are tied.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// `names`: the names of `parameter` in the full model's state dict, including this stage's own, in the order of the search.
/// A module that contains the stage may put a prefix before all of them. `parameter`: the stage's own or, if
/// fully_shard has sharded the stage, its shard. As with mark_non_persistent, the names belong to the tensor: they stay when the
/// module is wrapped, moved to a device or converted. They replace earlier names. Throws c10::ValueError for fewer than two
/// names, and for an undefined tensor. Thread-safe.
COHORT_API void tie_names(const at::Tensor& parameter, std::vector<std::string> names);

namespace detail {

/// Returns the other names of the parameter that a module calls `name`.
std::vector<std::string> other_names(const at::Tensor& parameter, const std::string& name);

}  // namespace detail

}  // namespace cohort::checkpoint
