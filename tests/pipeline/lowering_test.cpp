#include "cohort/pipeline/lowering.h"

#include <gtest/gtest.h>

namespace cohort::pipeline {
namespace {

using enum ActionKind;

TEST(Lowering, GradientsAreReducedAfterTheLastBackwardOfAStage) {
  const ActionList list = {{kFullBackward, 0, 0},   {kIdle},
                           {kBackwardInput, 1, 0},  {kFullBackward, 0, 1},
                           {kBackwardWeight, 1, 0}, {kFullBackward, 1, 1}};
  const ActionList expected = {{kFullBackward, 0, 0},   {kBackwardInput, 1, 0}, {kFullBackward, 0, 1}, {kReduceGrad, 0},
                               {kBackwardWeight, 1, 0}, {kFullBackward, 1, 1},  {kReduceGrad, 1}};
  EXPECT_EQ(add_reduce_grad(list, 2), expected);
}

}  // namespace
}  // namespace cohort::pipeline
