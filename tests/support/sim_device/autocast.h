#pragma once

namespace cohort::sim {

/// Autocast for a PrivateUse1 device, which LibTorch leaves to the device; with the operators and policies that CUDA has. CUDA's
/// own place has them already.
void register_autocast();

}  // namespace cohort::sim
