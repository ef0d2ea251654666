#pragma once

namespace cohort::sim {

/// What LibTorch asks of a device outside the dispatcher: how many there are, generators, pinned memory.
void register_hooks();

}  // namespace cohort::sim
