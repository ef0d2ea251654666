/// Texts of the errors of a reducer. Pure. Users of DistributedDataParallel get the wording that PyTorch's tests pin
/// (distributed_test.py); those of ddp::Reducer have no module and no keyword arguments, and get texts in its own terms.
#pragma once

#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

/// Who uses the reducer, and so reads its texts.
enum class Reader { kReducer, kModule };

struct UnfinishedReduction {
  Reader reader = Reader::kModule;
  /// kReducer: what cannot be done, "prepare() cannot begin a step".
  std::string what = {};
  int rank = 0;
  int world_size = 1;
  bool find_unused_parameters = false;
  bool static_graph = false;
  /// Parameters without a gradient, all parameters' names (may be empty), and how many they are.
  std::vector<size_t> indices = {};
  std::vector<std::string> names = {};
  size_t num_parameters = 0;
};

COHORT_TEST_API std::string unfinished_reduction_message(const UnfinishedReduction& state);

/// A parameter that got one gradient too many.
struct ExtraGradient {
  Reader reader = Reader::kModule;
  int rank = 0;
  int world_size = 1;
  size_t index = 0;
  std::vector<std::string> names = {};
  /// Unused parameters had been looked for.
  bool searched = false;
};

COHORT_TEST_API std::string ready_twice_message(const ExtraGradient& state);
/// With a static graph: more gradients than in the first step.
COHORT_TEST_API std::string graph_changed_message(const ExtraGradient& state);
/// Every step after one that failed.
COHORT_TEST_API std::string failed_before_message(Reader reader, const std::string& failure);
/// The search for unused parameters has found none.
COHORT_TEST_API std::string none_unused_message(Reader reader);
std::string create_graph_message();
/// `reason`: LibTorch's text. Readers are ddp::Reducer's.
COHORT_TEST_API std::string different_parameters_message(int rank, int world_size, std::string reason);

}  // namespace cohort::ddp
