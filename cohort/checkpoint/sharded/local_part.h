/// A rank's state as files know it: which elements of which tensor, and where they lie in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cohort/checkpoint/state/state_value.h"
#include "cohort/files/tensors/plan/save_plan.h"

namespace cohort::checkpoint::detail {

/// This rank's elements of the value's tensor; nothing of it on a rank that the part's mesh does not have.
/// Throws c10::ValueError for a partial sum, and for a part of another shape than its description says.
files::Region region_of(const std::string& key, const StateValue& value);
/// Of the whole.
std::vector<int64_t> whole_shape(const StateValue& value);

/// Throws c10::ValueError for what cannot be stored.
std::vector<files::SaveItem> describe(const ShardedStateDict& state);

/// The tensor's elements, row by row, on the CPU: itself where they lie like that already.
at::Tensor plain_data(const at::Tensor& tensor);
/// True if the elements lie on the CPU, row by row, as `dtype`, and any bytes may stand there.
bool is_plain(const at::Tensor& tensor, c10::ScalarType dtype);

}  // namespace cohort::checkpoint::detail
