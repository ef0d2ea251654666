/// Error texts of a reducer. Pure. Users of DistributedDataParallel get the wording that PyTorch's tests pin
/// (distributed_test.py). Users of ddp::Reducer have no module and no keyword arguments, and get texts in its own terms.
#pragma once

#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

/// The audience of the texts: users of ddp::Reducer or of a module.
enum class Audience { kReducer, kModule };

struct UnfinishedReduction {
  Audience audience = Audience::kModule;
  /// For kReducer: the action that is impossible, such as "prepare() cannot begin a step".
  std::string what = {};
  int rank = 0;
  int world_size = 1;
  bool find_unused_parameters = false;
  bool static_graph = false;
  /// Parameters without a gradient, all parameters' names (may be empty), and the number of parameters.
  std::vector<size_t> indices = {};
  std::vector<std::string> names = {};
  size_t num_parameters = 0;
};

COHORT_TEST_API std::string unfinished_reduction_message(const UnfinishedReduction& state);

/// A parameter that got one gradient too many.
struct ExtraGradient {
  Audience audience = Audience::kModule;
  int rank = 0;
  int world_size = 1;
  size_t index = 0;
  std::vector<std::string> names = {};
  /// Whether unused parameters had been searched for.
  bool searched = false;
};

COHORT_TEST_API std::string ready_twice_message(const ExtraGradient& state);
/// For a static graph: more gradients than in the first step.
COHORT_TEST_API std::string graph_changed_message(const ExtraGradient& state);
/// For every step after a failed one.
COHORT_TEST_API std::string failed_before_message(Audience audience, const std::string& failure);
/// For a search for unused parameters that has found none.
COHORT_TEST_API std::string none_unused_message(Audience audience);
std::string create_graph_message();
/// `reason`: LibTorch's text. For users of ddp::Reducer.
COHORT_TEST_API std::string different_parameters_message(int rank, int world_size, std::string reason);

}  // namespace cohort::ddp
