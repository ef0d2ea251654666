/// The dispatch key that makes LibTorch's functions come to us with a tensor that lies in parts: CustomRNGKeyId, which LibTorch
/// keeps for extensions, uses nowhere itself, and asks below autograd and autocast.
#pragma once

#include <c10/core/DispatchKey.h>

#include <string>

#include "cohort/export.h"

namespace cohort::dtensor {

inline constexpr auto kKey = c10::DispatchKey::CustomRNGKeyId;

/// Who uses `key` in this process: empty if nobody does, else for a sentence: "operator aten::add.Tensor has a kernel for it".
COHORT_TEST_API std::string user_of_key(c10::DispatchKey key);
/// Throws c10::NotImplementedError, with what to do, unless the key is free.
COHORT_TEST_API void check_key_is_free(c10::DispatchKey key);

}  // namespace cohort::dtensor
