#include "cohort/data/samplers/distributed_sampler.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "tests/data/error_text.h"
#include "tests/support/rank_processes.h"

namespace cohort::data {
namespace {

using test::error_text;
using testing::ElementsAre;

DistributedSamplerOptions rank_of(int64_t rank, int64_t num_replicas, bool shuffle = true) {
  return {.num_replicas = num_replicas, .rank = rank, .shuffle = shuffle};
}

class CollectWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

TEST(DistributedSampler, StridesAndPadsFromTheStart) {
  EXPECT_THAT(DistributedSampler(5, rank_of(0, 2, false)).indices(), ElementsAre(0, 2, 4));
  EXPECT_THAT(DistributedSampler(5, rank_of(1, 2, false)).indices(), ElementsAre(1, 3, 0));
}

TEST(DistributedSampler, PadsATinyDatasetSeveralTimes) {
  EXPECT_THAT(DistributedSampler(2, rank_of(6, 7, false)).indices(), ElementsAre(0));
  EXPECT_THAT(DistributedSampler(1, rank_of(4, 5, false)).indices(), ElementsAre(0));
  EXPECT_THAT(DistributedSampler(0, rank_of(4, 5, false)).indices(), ElementsAre());
}

TEST(DistributedSampler, MoreReplicasThanNumbersCanBeAddedTo) {
  DistributedSampler sampler(5, {.num_replicas = INT64_MAX, .rank = 7, .shuffle = false});
  EXPECT_EQ(sampler.size(), 1);
  EXPECT_THAT(sampler.indices(), ElementsAre(2));
}

TEST(DistributedSampler, DropLastCutsTheTail) {
  DistributedSamplerOptions options = rank_of(1, 2, false);
  options.drop_last = true;
  DistributedSampler sampler(5, options);
  EXPECT_THAT(sampler.indices(), ElementsAre(1, 3));
  EXPECT_EQ(sampler.size(), 2);
}

TEST(DistributedSampler, RanksTogetherVisitEveryExample) {
  std::set<int64_t> seen;
  for (int64_t rank = 0; rank < 3; ++rank) {
    for (const int64_t index : DistributedSampler(9, rank_of(rank, 3)).indices()) {
      EXPECT_TRUE(seen.insert(index).second);
    }
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST(DistributedSampler, EpochAndSeedAddUp) {
  DistributedSampler a(30, {.num_replicas = 1, .rank = 0, .seed = 5});
  DistributedSampler b(30, {.num_replicas = 1, .rank = 0, .seed = 2});
  b.set_epoch(3);
  EXPECT_EQ(a.indices(), b.indices());
}

TEST(DistributedSampler, InvalidRankMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([] { DistributedSampler(8, rank_of(3, 3)); }),
            "Invalid rank 3, rank should be in the interval [0, 2]");
  EXPECT_EQ(error_text<c10::ValueError>([] { DistributedSampler(8, rank_of(-1, 3)); }),
            "Invalid rank -1, rank should be in the interval [0, 2]");
}

TEST(DistributedSampler, NeedsAProcessGroupWhenRanksAreNotGiven) {
  EXPECT_THROW(DistributedSampler(8, {}), c10::ValueError);
}

COHORT_WORKER(distributed_sampler_takes_ranks_from_the_default_group) {
  init_process_group("gloo");
  DistributedSampler sampler(5, {.shuffle = false});
  const std::vector<int64_t> expected = get_rank() == 0 ? std::vector<int64_t>{0, 2, 4} : std::vector<int64_t>{1, 3, 0};
  TORCH_CHECK(sampler.indices() == expected, "rank ", get_rank(), " got ", sampler.indices());
  barrier();  // who leaves while the other one still connects makes that fail
  destroy_process_group();
}

TEST(DistributedSampler, TakesRanksFromTheDefaultGroup) {
  test::run_workers("distributed_sampler_takes_ranks_from_the_default_group").expect_success();
}

TEST(DistributedSampler, WarnsOnceWhenEpochIsNeverSet) {
  CollectWarnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  DistributedSampler sampler(8, rank_of(0, 2));
  sampler.indices();
  EXPECT_THAT(warnings.texts, ElementsAre());
  sampler.indices();
  sampler.indices();
  EXPECT_THAT(warnings.texts,
              ElementsAre("[cohort] DistributedSampler begins a second epoch, but set_epoch was never called: every "
                          "epoch has the same order.\n  hint: call sampler->set_epoch(epoch) before each epoch, or set "
                          "shuffle to false."));
}

TEST(DistributedSampler, DoesNotWarnWithSetEpochOrWithoutShuffle) {
  CollectWarnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  DistributedSampler set(8, rank_of(0, 2));
  DistributedSampler ordered(8, rank_of(0, 2, false));
  for (int epoch = 0; epoch < 3; ++epoch) {
    set.set_epoch(epoch);
    set.indices();
    ordered.indices();
  }
  EXPECT_THAT(warnings.texts, ElementsAre());
}

}  // namespace
}  // namespace cohort::data
