#pragma once

namespace cohort::sim {

/// Tells LibTorch how to change device and stream, and how to record and wait for events (c10::Stream, c10::Event and their
/// guards).
void register_guard();

}  // namespace cohort::sim
