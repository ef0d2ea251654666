/// The dispatch key that makes LibTorch's functions come to us with a tensor that lies in parts: CustomRNGKeyId, which LibTorch
/// keeps for extensions, uses nowhere itself, and asks below autograd and autocast.
#pragma once

#include <c10/core/DispatchKey.h>

namespace cohort::dtensor {

inline constexpr auto kKey = c10::DispatchKey::CustomRNGKeyId;

}  // namespace cohort::dtensor
