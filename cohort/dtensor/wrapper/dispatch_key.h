/// The dispatch key by which LibTorch's functions call us for DTensors: CustomRNGKeyId. LibTorch keeps it for extensions, does
/// not use it itself, and dispatches to it below autograd and autocast.
#pragma once

#include <c10/core/DispatchKey.h>

namespace cohort::dtensor {

inline constexpr auto kKey = c10::DispatchKey::CustomRNGKeyId;

}  // namespace cohort::dtensor
