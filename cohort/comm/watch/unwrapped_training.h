/// One warning when a program of several ranks trains a model that no rank exchanges gradients of: each trains its own copy,
/// at full speed and without an error. The usual cause is a model that was not wrapped.
#pragma once

#include <memory>
#include <string>

namespace cohort::comm {

struct WatchedTraining {
  int rank = 0;
  int world_size = 1;
  std::string wrapper;            ///< what the text names, "cohort::DistributedDataParallel"
  std::string advice = {};        ///< the end of the text; may be empty
  std::weak_ptr<const void> job;  ///< when it has gone, nobody is left to exchange gradients with
};

/// From now on, the second backward pass that reaches parameters warns on rank 0, unless gradients_are_exchanged() came before,
/// or a parameter has hooks for its gradient. Costs a function call per node of a backward pass until then.
void watch_for_unwrapped_training(WatchedTraining training);
/// Ends the watch: a reducing collective or a message between two ranks has run (stages of a pipeline train by those), or a
/// collective that the library calls for a purpose of its own, or something has been made that will run them (DDP, a DTensor).
/// Thread-safe, cheap.
void gradients_are_exchanged();

}  // namespace cohort::comm
