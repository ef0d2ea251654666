/// A rank's state as files describe it: which elements of which tensor it has, and where they are in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cohort/checkpoint/state/state_value.h"
#include "cohort/files/tensors/plan/save_plan.h"

namespace cohort::checkpoint::detail {

/// Returns this rank's elements of the value's tensor; an empty region on a rank outside of the shard's mesh.
/// Throws c10::ValueError for a Partial, and for a shard whose shape is not the one in its description.
files::Region region_of(const std::string& key, const StateValue& value);
/// Returns the global shape.
std::vector<int64_t> global_shape(const StateValue& value);

/// Throws c10::ValueError for values that cannot be stored.
std::vector<files::SaveItem> describe(const ShardedStateDict& state);

/// Returns the tensor's elements, row by row, on the CPU: the tensor itself if it is like that already.
at::Tensor plain_data(const at::Tensor& tensor);
/// Whether the elements are on the CPU, row by row, as `dtype`, and any bytes are valid elements.
bool is_plain(const at::Tensor& tensor, c10::ScalarType dtype);

}  // namespace cohort::checkpoint::detail
