#include "cohort/parallel/ddp/settings/reducer_errors.h"

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
      ready_twice_message({.index = 1, .names = {"a", "b"}}),
      "Expected to mark a variable ready only once. Either a parameter is used outside `forward` (for example shared "
      "by "
      "several forward and backward passes at a time), or several reentrant backward passes use it (for example "
      "checkpoints over the same part of the model). If the graph is the same in every iteration, static_graph allows "
      "this.\nParameter at index 1 with name b has been marked as ready twice. This means that multiple autograd "
      "engine "
      "hooks have fired for this particular parameter during this iteration.");
  EXPECT_NE(ready_twice_message({.index = 1, .names = {}, .searched = true})
                .find("turn off find_unused_parameters.\nParameter at index 1 has been"),
            std::string::npos);
}

TEST(ReducerErrors, GraphChangedMessage) {
  EXPECT_EQ(
      graph_changed_message({.names = {}}),
      "Your training graph has changed in this iteration, e.g., one parameter is unused in first iteration, but then "
      "got used in the second iteration. this is not compatible with static_graph set to True.");
}

TEST(ReducerErrors, LongListsAreCutForUsersOfReducerMessage) {
  UnfinishedReduction state{
      .audience = Audience::kReducer, .what = "finalize() cannot end the step", .names = {}, .num_parameters = 30};
  for (size_t i = 0; i < 22; ++i) state.indices.push_back(i);
  const auto text = unfinished_reduction_message(state);
  EXPECT_NE(
      text.find("\n  caused by: 22 of 30 parameters got no gradient: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, "
                "15, 16, 17, 18, 19 and 2 more\n"),
      std::string::npos)
      << text;
}

TEST(ReducerErrors, StepsAfterAFailureAndNeedlessSearchesMessage) {
  EXPECT_EQ(failed_before_message(Audience::kModule, "why"),
            "[cohort] this DistributedDataParallel cannot go on: an earlier step failed\nwhy");
  EXPECT_EQ(failed_before_message(Audience::kReducer, "why"),
            "[cohort] this ddp::Reducer cannot go on: an earlier step failed\nwhy");
  EXPECT_EQ(
      none_unused_message(Audience::kModule),
      "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the "
      "forward pass. The search walks the autograd graph in every iteration; turn it off if all parameters always take "
      "part.");
  EXPECT_EQ(
      none_unused_message(Audience::kReducer),
      "ReducerOptions::find_unused_parameters is set, but the tensors given to ddp::Reducer::prepare() depend on every "
      "parameter. The search walks the autograd graph in every step; turn it off if all parameters always take part.");
}

}  // namespace
}  // namespace cohort::ddp
