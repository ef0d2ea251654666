/// One warning when a program of several ranks trains a model that no rank exchanges gradients of: each trains its own copy,
/// at full speed and without an error. The usual cause is a model that was not wrapped.
#pragma once

namespace cohort::comm {

/// From now on, the second backward pass that reaches parameters warns, unless gradients_are_exchanged() came before.
/// Costs a function call per node of a backward pass until then.
void watch_for_unwrapped_training(int rank, int world_size);
/// Ends the watch: a reducing collective has run, or something has been made that will run them (DDP). Thread-safe, cheap.
void gradients_are_exchanged();

}  // namespace cohort::comm
