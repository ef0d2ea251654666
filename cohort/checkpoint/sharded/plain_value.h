/// Conversions of plain values to and from the index of a checkpoint (files/tensors/elements/plain_json.h).
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "cohort/files/tensors/elements/json_fwd.h"

namespace cohort::checkpoint::detail {

/// Throws c10::ValueError, naming the key, for a value that contains a tensor, and for values without a plain form.
files::Json to_json(const std::string& key, const c10::IValue& value);
/// Throws c10::ValueError for JSON that to_json does not write.
c10::IValue to_ivalue(const std::string& key, const files::Json& json);

}  // namespace cohort::checkpoint::detail
