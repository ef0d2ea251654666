#include "cohort/report/progress/epoch_text.h"

#include <gtest/gtest.h>

namespace cohort::report {
namespace {

EpochFigures figures() {
  return {.epoch = 2,
          .num_epochs = 10,
          .step = 40,
          .num_steps = 400,
          .seconds = 8.0,
          .num_samples = 8000,
          .world_size = 2,
          .metrics = {{"loss", 1.25}, {"accuracy", 0.5}},
          .data_wait_share = 0.031,
          .communication_share = 0.08,
          .memory_bytes = uint64_t{3} << 29};
}

std::string line(const std::vector<LinePart>& parts, size_t columns = 0) { return fitted_line(parts, columns, false); }

TEST(EpochText, SaysAllWhereThereIsRoom) {
  EXPECT_EQ(
      line(epoch_parts(figures(), true)),
      "epoch 3/10  [>           ]  step 40/400  loss 1.2500  accuracy 0.5000  1000 samples/s  500 samples/s per rank  "
      "data 3%  comm 8%  ETA 1:12  1.5 GiB");
}

TEST(EpochText, LeavesOutWhatMattersLeast) {
  const auto parts = epoch_parts(figures(), true);
  EXPECT_EQ(line(parts, 120),
            "epoch 3/10  [>           ]  step 40/400  loss 1.2500  accuracy 0.5000  1000 samples/s  data 3%  comm 8%  "
            "ETA 1:12");
  EXPECT_EQ(line(parts, 80), "epoch 3/10  step 40/400  loss 1.2500  accuracy 0.5000  1000 samples/s  ETA 1:12");
  EXPECT_EQ(line(parts, 50), "epoch 3/10  step 40/400  loss 1.2500  ETA 1:12");
  EXPECT_EQ(line(parts, 24), "epoch 3/10  step 40/400");
}

TEST(EpochText, KnowsNeitherEndNorRanks) {
  EpochFigures unknown = figures();
  unknown.num_epochs = unknown.num_steps = std::nullopt;
  unknown.world_size = 1;
  unknown.data_wait_share = unknown.communication_share = std::nullopt;
  unknown.memory_bytes = std::nullopt;
  EXPECT_EQ(line(epoch_parts(unknown, true)), "epoch 3  step 40  loss 1.2500  accuracy 0.5000  1000 samples/s");
}

TEST(EpochText, CountsOnlyThisRunAfterAResume) {
  EpochFigures resumed = figures();
  resumed.first_step = 30;
  EXPECT_EQ(line(epoch_parts(resumed, false), 80),
            "epoch 3/10  step 40/400  loss 1.2500  accuracy 0.5000  1000 samples/s  ETA 4:48");
}

TEST(EpochText, EndsWithTheTime) {
  EXPECT_EQ(line(ended_epoch_parts(figures()), 100),
            "epoch 3/10  40 steps in 0:08  loss 1.2500  accuracy 0.5000  1000 samples/s  data 3%  comm 8%");
}

TEST(EpochText, TheBarIsFullAtTheEnd) {
  EpochFigures end = figures();
  end.step = 400;
  EXPECT_NE(line(epoch_parts(end, true)).find("[============]"), std::string::npos);
  end.step = 200;
  EXPECT_NE(line(epoch_parts(end, true)).find("[=====>      ]"), std::string::npos);
}

}  // namespace
}  // namespace cohort::report
