#pragma once

namespace cohort::sim {

/// The operators that cannot be a CPU kernel in a stream: memory, views, copies, reading a number.
void register_operators();

}  // namespace cohort::sim
