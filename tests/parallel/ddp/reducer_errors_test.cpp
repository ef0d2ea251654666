#include "cohort/parallel/ddp/reducer_errors.h"

#include <gtest/gtest.h>

namespace cohort::ddp {
namespace {

TEST(ReducerErrors, UnfinishedReductionMessage) {
  EXPECT_EQ(
      unfinished_reduction_message({.rank = 1, .indices = {0, 2}, .names = {"a.weight", "a.bias", "b.weight"}}),
      "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
      "your module has parameters that were not used in producing loss. You can enable unused parameter detection by "
      "passing the keyword argument `find_unused_parameters=True` to `DistributedDataParallel`, and by making sure all "
      "`forward` function outputs participate in calculating loss.\n"
      "Parameters which did not receive grad for rank 1: a.weight, b.weight\n"
      "Parameter indices which did not receive grad for rank 1: 0 2");
}

TEST(ReducerErrors, UnfinishedReductionWithSearchMessage) {
  EXPECT_EQ(
      unfinished_reduction_message({.rank = 0, .find_unused_parameters = true, .indices = {3}, .names = {}}),
      "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
      "your module has parameters that were not used in producing loss. Since `find_unused_parameters=True` is "
      "enabled, "
      "this likely means that not all `forward` outputs participate in computing loss. You can fix this by making sure "
      "all `forward` function outputs participate in calculating loss.\n"
      "Parameter indices which did not receive grad for rank 0: 3\n"
      " In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print "
      "out "
      "information about which particular parameters did not receive gradient on this rank as part of this error");
}

TEST(ReducerErrors, UnfinishedReductionOfAStaticGraphMessage) {
  EXPECT_EQ(
      unfinished_reduction_message({.static_graph = true, .indices = {1}, .names = {}}),
      "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
      "your training graph has changed in this iteration, e.g., one parameter is used in first iteration, but then got "
      "unused in the second iteration. this is not compatible with static_graph set to True.");
}

TEST(ReducerErrors, ReadyTwiceMessage) {
  EXPECT_EQ(
      ready_twice_message(1, {"a", "b"}, false),
      "Expected to mark a variable ready only once. Either a parameter is used outside `forward` (for example shared "
      "by "
      "several forward and backward passes at a time), or several reentrant backward passes use it (for example "
      "checkpoints over the same part of the model). If the graph is the same in every iteration, static_graph allows "
      "this.\nParameter at index 1 with name b has been marked as ready twice. This means that multiple autograd "
      "engine "
      "hooks have fired for this particular parameter during this iteration.");
  EXPECT_NE(ready_twice_message(1, {}, true).find("turn off find_unused_parameters.\nParameter at index 1 has been"),
            std::string::npos);
}

TEST(ReducerErrors, GraphChangedMessage) {
  EXPECT_EQ(
      graph_changed_message(),
      "Your training graph has changed in this iteration, e.g., one parameter is unused in first iteration, but then "
      "got used in the second iteration. this is not compatible with static_graph set to True.");
}

}  // namespace
}  // namespace cohort::ddp
