#include "cohort/parallel/ddp/buckets/unused.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace cohort::ddp {
namespace {

TEST(Unused, FindsParametersThatNoOutputDependsOn) {
  const std::vector<at::Tensor> parameters = {torch::ones({2}, at::requires_grad()),
                                              torch::ones({2}, at::requires_grad()),
                                              torch::ones({2}, at::requires_grad())};
  const UnusedSearch search(parameters);
  const auto first = parameters[0] * 2;
  const auto second = parameters[2].exp() + first;
  EXPECT_EQ(search.unused({first}), (std::vector<size_t>{1, 2}));
  EXPECT_EQ(search.unused({first, second}), (std::vector<size_t>{1}));
  EXPECT_EQ(search.unused({second, parameters[1] * 1}), std::vector<size_t>{});
  EXPECT_EQ(search.unused({parameters[1]}), (std::vector<size_t>{0, 2}));
  EXPECT_EQ(search.unused({torch::ones({1})}), (std::vector<size_t>{0, 1, 2}));
}

}  // namespace
}  // namespace cohort::ddp
