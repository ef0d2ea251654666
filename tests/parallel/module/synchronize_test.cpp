#include "cohort/parallel/module/synchronize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::parallel {
namespace {

using Parameters = std::vector<at::Tensor>;

// What each of the ranks says of the parameters that `make` gives it: "" if nothing.
std::vector<std::string> said_by_ranks(int world_size, const std::function<Parameters(int rank)>& make) {
  std::vector<std::string> texts(static_cast<size_t>(world_size));
  test::run_rank_threads(world_size, [&](int rank, const Group& group) {
    const auto text = test::error_of([&] { verify_same_parameters(group, make(rank)); });
    texts[static_cast<size_t>(rank)] = text == "(no error)" ? "" : text;
    group->barrier()->wait();  // nobody leaves before all have been told
  });
  return texts;
}

std::string differs(int rank, const std::string& parameter, const std::string& sizes) {
  return "[" + std::to_string(rank) + "]: params[" + parameter + "] in this process with sizes " + sizes +
         " appears not to match sizes of the same param in process 0.";
}

// PyTorch's words, sizes and all.
constexpr const char* kStridesDiffer =
    "params[0] in this process with sizes [3, 5] appears not to match strides of the same param in process 0.";

at::Tensor transposed(int64_t rows, int64_t columns) { return torch::ones({columns, rows}).t(); }

TEST(Synchronize, EveryRankWhoseSizesDifferFromRankZerosIsToldMessage) {
  EXPECT_THAT(
      said_by_ranks(4,
                    [](int rank) {
                      return Parameters{torch::ones({2}), torch::ones({3, rank == 2 ? 4 : 5 + rank % 2})};
                    }),
      testing::ElementsAre("", differs(1, "1", "[3, 6]"), differs(2, "1", "[3, 4]"), differs(3, "1", "[3, 6]")));
  EXPECT_THAT(said_by_ranks(3, [](int rank) { return Parameters{torch::ones({rank == 0 ? 4 : 5})}; }),
              testing::ElementsAre("", differs(1, "0", "[5]"), differs(2, "0", "[5]")));
}

TEST(Synchronize, EveryRankWhoseStridesDifferFromRankZerosIsToldMessage) {
  EXPECT_THAT(said_by_ranks(3,
                            [](int rank) {
                              return Parameters{rank == 1 ? transposed(3, 5) : torch::ones({3, 5})};
                            }),
              testing::ElementsAre("", kStridesDiffer, ""));
  EXPECT_THAT(said_by_ranks(3,
                            [](int rank) {
                              return Parameters{rank == 0 ? transposed(3, 5) : torch::ones({3, 5})};
                            }),
              testing::ElementsAre("", kStridesDiffer, kStridesDiffer));
}

TEST(Synchronize, EveryRankIsToldThatNumbersDifferMessage) {
  const std::string begin = "DDP expects same model across all ranks, but ";
  EXPECT_THAT(said_by_ranks(3, [](int rank) { return Parameters(rank == 2 ? 1 : 2, torch::ones({2})); }),
              testing::ElementsAre(begin + "Rank 0 has 2 params, while rank 2 has inconsistent 1 params.",
                                   begin + "Rank 1 has 2 params, while rank 2 has inconsistent 1 params.",
                                   begin + "Rank 2 has 1 params, while rank 0 has inconsistent 2 params."));
}

}  // namespace
}  // namespace cohort::parallel
