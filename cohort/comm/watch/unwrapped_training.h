/// Warns once if a program of several ranks trains a model whose gradients no rank exchanges: each rank trains its own copy,
/// at full speed and without an error. The usual cause is a model that was not wrapped.
#pragma once

#include <memory>
#include <string>

namespace cohort::comm {

struct WatchedTraining {
  int rank = 0;
  int world_size = 1;
  std::string wrapper;            ///< the name in the text, "cohort::DistributedDataParallel"
  std::string advice = {};        ///< the end of the text; may be empty
  std::weak_ptr<const void> job;  ///< once it is gone, no rank is left to exchange gradients with
};

/// Starts the watch: the second backward pass that reaches parameters warns on rank 0, unless gradients_are_exchanged() was
/// called before, or a parameter has hooks for its gradient. Until then it costs a function call per node of a backward pass.
void watch_for_unwrapped_training(WatchedTraining training);
/// Ends the watch. Called when a reducing collective or a message between two ranks has run (pipeline stages train with
/// messages), or a collective that the library calls for a purpose of its own, or when something is made that will run these
/// (DDP, a DTensor). Thread-safe, cheap.
void gradients_are_exchanged();

}  // namespace cohort::comm
