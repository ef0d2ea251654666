#include "cohort/report/progress/summary_text.h"

#include <gtest/gtest.h>

namespace cohort::report {
namespace {

std::vector<EpochResult> two_epochs(double data, double communication) {
  return {{.epoch = 0,
           .seconds = 64,
           .num_samples = 64000,
           .metrics = {{"loss", 1.25}},
           .data_wait_share = data,
           .communication_share = communication},
          {.epoch = 1,
           .seconds = 36,
           .num_samples = 64000,
           .metrics = {{"loss", 0.5}, {"accuracy", 0.75}},
           .data_wait_share = data,
           .communication_share = communication}};
}

TEST(SummaryText, IsATableWithATotal) {
  EXPECT_EQ(summary_text(two_epochs(0.02, 0.1), {.world_size = 2}),
            "epoch  time    loss  accuracy           speed  data  comm  busy\n"
            "-----  ----  ------  --------  --------------  ----  ----  ----\n"
            "    1  1:04  1.2500            1000 samples/s    2%   10%   88%\n"
            "    2  0:36  0.5000    0.7500  1778 samples/s    2%   10%   88%\n"
            "total: 1:40 in 2 epochs, 1280 samples/s by 2 ranks, 640 samples/s each\n");
}

TEST(SummaryText, SaysWhatToDoAboutWaiting) {
  const auto hints = [](const std::vector<EpochResult>& epochs) {
    const std::string text = summary_text(epochs, {});
    const size_t hint = text.find("hint:");
    return hint == std::string::npos ? "" : text.substr(hint);
  };
  const std::string data =
      "hint: ranks waited for data 40% of the time; give the loader more workers (num_workers), or make samples "
      "cheaper to "
      "read\n";
  const std::string communication =
      "hint: ranks waited for each other 35% of the time; use larger batches, or accumulate gradients over several "
      "before a "
      "step\n";
  EXPECT_EQ(hints(two_epochs(0.4, 0.1)), data);
  EXPECT_EQ(hints(two_epochs(0.1, 0.35)), communication);
  EXPECT_EQ(hints(two_epochs(0.4, 0.35)), data + communication);
  auto idle = two_epochs(0.0, 0.0);
  idle[0].cpu_share = idle[1].cpu_share = 0.25;
  EXPECT_EQ(hints(idle),
            "hint: the ranks used 25% of their CPUs; more threads (OMP_NUM_THREADS), larger batches or more ranks may "
            "use the "
            "rest\n");
}

TEST(SummaryText, SharesAreWeightedByTime) {
  auto epochs = two_epochs(0.0, 0.0);
  epochs[0].data_wait_share = 0.5;  // 64 of 100 seconds
  EXPECT_NE(summary_text(epochs, {}).find("waited for data 32% of the time"), std::string::npos);
}

TEST(SummaryText, DoesNotCallRanksBusyWhereCommunicationIsNotMeasured) {
  EXPECT_EQ(summary_text({{.epoch = 0, .seconds = 2, .num_samples = 20, .data_wait_share = 0.25}}, {}),
            "epoch  time           speed  data  comm  busy\n"
            "-----  ----  --------------  ----  ----  ----\n"
            "    1  0:02  10.0 samples/s   25%\n"
            "total: 0:02 in 1 epoch, 10.0 samples/s\n"
            "hint: ranks waited for data 25% of the time; give the loader more workers (num_workers), or make samples "
            "cheaper to read\n");
}

TEST(SummaryText, NothingWasMeasured) {
  EXPECT_EQ(summary_text({{.epoch = 0, .seconds = 2, .num_samples = 20}}, {.unit = "tokens"}),
            "epoch  time          speed  data  comm  busy\n"
            "-----  ----  -------------  ----  ----  ----\n"
            "    1  0:02  10.0 tokens/s\n"
            "total: 0:02 in 1 epoch, 10.0 tokens/s\n");
  EXPECT_EQ(summary_text({}, {}), "");
}

}  // namespace
}  // namespace cohort::report
