#include "cohort/train/config/run_config.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

namespace cohort::train {
namespace {

using test::error_of;

struct Wanted {
  int64_t epochs = 5;
  int workers = 2;
  bool amp = false;
  double rate = 0.1;
  std::string name = "a";
  std::vector<int64_t> milestones;
  std::vector<double> betas = {0.9, 0.99};
  std::vector<std::string> data;

  void add_to(RunConfig& config) {
    config.section("All:");
    config.add("epochs", epochs, "passes", {.min = 1});
    config.add("workers", workers, "threads");
    config.add("amp", amp, "mixed precision");
    config.add("optimizer.lr", rate, "learning rate", {.above = 0});
    config.add("name", name, "of the run");
    config.add("milestones", milestones, "epochs");
    config.add("betas", betas, "two numbers");
    config.add("data", data, "folders");
  }
};

TEST(RunConfig, TakesFileAndFlags) {
  const test::TemporaryFolder folder;
  Wanted first;
  RunConfig config("train", "Trains.");
  first.add_to(config);
  EXPECT_EQ(config.parse({"--epochs=7", "--workers", "3", "--amp", "--milestones", "1,2", "--data", "a,b"}),
            RunConfig::Outcome::kRun);
  config.save(folder / "logs/config.toml");
  EXPECT_TRUE(config.was_given("epochs"));
  EXPECT_FALSE(config.was_given("optimizer.lr"));
  Wanted second;
  RunConfig again("train", "Trains.");
  second.add_to(again);
  EXPECT_EQ(again.parse({"--config", folder / "logs/config.toml", "--no-amp", "--optimizer.lr", "0.5"}),
            RunConfig::Outcome::kRun);
  EXPECT_EQ(second.epochs, 7);
  EXPECT_EQ(second.workers, 3);
  EXPECT_FALSE(second.amp);
  EXPECT_EQ(second.rate, 0.5);
  EXPECT_EQ(second.milestones, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(second.betas, (std::vector<double>{0.9, 0.99}));
  EXPECT_EQ(second.data, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(again.values()[0].second, Hyperparameter(int64_t{7}));
  EXPECT_EQ(again.parse({"--help"}), RunConfig::Outcome::kHelp);
  EXPECT_NE(again.help().find("--optimizer.lr NUMBER         learning rate; above 0 [0.5]"), std::string::npos);
}

TEST(RunConfig, SaysWhatIsWrong) {
  Wanted wanted;
  RunConfig config("train", "Trains.");
  wanted.add_to(config);
  EXPECT_EQ(error_of([&] {
              config.parse({"--epoch", "1"});
            }),
            "[cohort] there is no option --epoch (did you mean \"--epochs\"?)\n  hint: --help lists the options");
  EXPECT_EQ(error_of([&] {
              config.parse({"--workers", "3000000000"});
            }),
            "[cohort] --workers \"3000000000\": is too large");
  EXPECT_EQ(error_of([&] { config.add("amp", wanted.amp, ""); }),
            "[cohort] RunConfig: there is an option \"amp\" already");
  EXPECT_EQ(error_of([&] { static_cast<void>(config.was_given("x")); }),
            "[cohort] RunConfig: there is no option \"x\"");
}

TEST(RunConfig, ReportsWhatHasEndedTheProgramMessage) {
  const test::TemporaryFolder folder;
  const std::string file = folder / "error.json";
  base::set_env("TORCHELASTIC_ERROR_FILE", file);
  const RunConfig config("train", "Trains.");
  const auto report = [&](const auto& fails) {
    testing::internal::CaptureStderr();
    try {
      fails();
    } catch (const std::exception& error) {
      EXPECT_EQ(config.report(error), 1);
    }
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(report([] { TORCH_CHECK_VALUE(false, "no such layer\n  hint: look again"); }),
            "train: error: no such layer\n  hint: look again\n");
  EXPECT_NE(base::read_file(file)->find("{\"message\": {\"message\": \"c10::ValueError: no such layer\\n  hint: look "
                                        "again\", \"extraInfo\""),
            std::string::npos);
  EXPECT_EQ(report([] { throw std::invalid_argument("no number"); }), "train: error: no number\n");
  base::unset_env("TORCHELASTIC_ERROR_FILE");
  EXPECT_NE(base::read_file(file)->find("\"std::invalid_argument: no number\""), std::string::npos);
}

TEST(RunConfig, EveryRankTellsTheLauncherOfAWrongOption) {
  const test::TemporaryFolder folder;
  const std::string file = folder / "error.json";
  Wanted wanted;
  RunConfig config("train", "Trains.");
  wanted.add_to(config);
  const char* wrong[] = {"train", "--epochs", "0"};
  const auto ends_on_rank_1 = [&] {
    base::set_env("RANK", "1");
    base::set_env("TORCHELASTIC_ERROR_FILE", file);
    config.parse_or_exit(3, wrong);
  };
  EXPECT_EXIT(ends_on_rank_1(), testing::ExitedWithCode(2), "^$");
  EXPECT_NE(base::read_file(file)->find("\"ValueError: --epochs \\\"0\\\": must be at least 1\""), std::string::npos);
}

TEST(RunConfig, EndsTheProgramByItself) {
  Wanted wanted;
  RunConfig config("train", "Trains.");
  wanted.add_to(config);
  const char* wrong[] = {"train", "--epochs", "0"};
  EXPECT_EXIT(config.parse_or_exit(3, wrong), testing::ExitedWithCode(2),
              "^error: --epochs \"0\": must be at least 1\n$");
  const char* help[] = {"train", "--help"};
  EXPECT_EXIT(config.parse_or_exit(2, help), testing::ExitedWithCode(0), "^$");
  const char* right[] = {"train", "--epochs", "2"};
  config.parse_or_exit(3, right);
  EXPECT_EQ(wanted.epochs, 2);
}

}  // namespace
}  // namespace cohort::train
