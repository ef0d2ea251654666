#include "cohort/train/logging/epoch_line.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"
#include "cohort/train/logging/run_summary.h"
#include "cohort/train/logging/torch_warnings.h"

namespace cohort::train {
namespace {

using std::chrono::seconds;

class EpochScreen {
 public:
  EpochScreen() : pipe_(base::make_pipe().value()) {}
  EpochLineOptions options(LineStyle style) {
    return {.num_epochs = 2, .world_size = 2, .style = style, .fd = pipe_.write_end.get(), .now = [this] {
              return std::chrono::steady_clock::time_point(time_);
            }};
  }
  void pass(seconds time) { time_ += time; }
  std::string text() {
    pipe_.write_end.reset();
    std::string all;
    char buffer[4096];
    for (ssize_t count; (count = ::read(pipe_.read_end.get(), buffer, sizeof buffer)) > 0;) all.append(buffer, count);
    return all;
  }

 private:
  base::Pipe pipe_;
  seconds time_{0};
};

EpochState state(int64_t step, double loss) {
  return {.step = step, .num_samples = step * 100, .metrics = {{"loss", loss}}, .memory_bytes = 1 << 20};
}

TEST(EpochLine, WritesLinesToALog) {
  EpochScreen screen;
  {
    EpochLine line(screen.options(LineStyle::kLog));
    line.begin(0, 10);
    screen.pass(seconds(5));
    line.update(state(5, 0.5));
    line.update(state(6, 0.4));  // too soon
    line.print("a note");
    screen.pass(seconds(5));
    line.end(state(10, 0.25));
    line.begin(0, std::nullopt, 0, "validation");
    screen.pass(seconds(1));
    line.end(state(1, 0.5), false);
  }
  EXPECT_EQ(screen.text(),
            "epoch 1/2  step 5/10  loss 0.5000  100 samples/s  50.0 samples/s per rank  ETA 0:05  1.0 MiB\n"
            "a note\n"
            "epoch 1/2  10 steps in 0:10  loss 0.2500  100 samples/s  50.0 samples/s per rank  1.0 MiB\n"
            "validation 1/2  1 step in 0:01  loss 0.5000  100 samples/s  50.0 samples/s per rank  1.0 MiB\n");
}

TEST(EpochLine, TheLongestIntervalLeavesTheFirst) {
  EpochScreen screen;
  {
    auto options = screen.options(LineStyle::kLog);
    options.min_interval = std::chrono::milliseconds::max();
    EpochLine line(options);
    line.begin(0, 10);
    screen.pass(seconds(5));
    line.update(state(5, 0.5));
    screen.pass(seconds(1000));
    line.update(state(6, 0.4));
  }
  EXPECT_EQ(screen.text(),
            "epoch 1/2  step 5/10  loss 0.5000  100 samples/s  50.0 samples/s per rank  ETA 0:05  1.0 MiB\n");
}

TEST(EpochLine, RewritesOneLineOnATerminal) {
  base::set_env("NO_COLOR", "1");
  EpochScreen screen;
  {
    EpochLine line(screen.options(LineStyle::kTerminal));
    line.begin(1, 10, 4);
    screen.pass(seconds(1));
    line.update(state(5, 0.5));
    line.end(state(10, 0.25));
    line.begin(0, std::nullopt, 0, "validation");
    screen.pass(seconds(1));
    line.update(state(1, 0.5));
    line.end(state(1, 0.5), false);
  }
  const std::string erase = "\r\x1b[2K";
  EXPECT_EQ(screen.text(),
            erase +
                "epoch 2/2  [=====>      ]  step 5/10  loss 0.5000  500 samples/s  250 samples/s per rank  ETA 0:05  "
                "1.0 MiB" +
                erase + "epoch 2/2  6 steps in 0:01  loss 0.2500  1000 samples/s  500 samples/s per rank  1.0 MiB\n" +
                erase + "validation 1/2  step 1  loss 0.5000  100 samples/s  50.0 samples/s per rank  1.0 MiB" + erase);
  base::unset_env("NO_COLOR");
}

TEST(EpochLine, StandsStillWhileItIsPaused) {
  EpochScreen screen;
  {
    EpochLine line(screen.options(LineStyle::kLog));
    line.begin(0, 10);
    screen.pass(seconds(5));
    line.pause();
    screen.pass(seconds(100));
    line.resume();
    line.end(state(10, 0.25));
    auto options = screen.options(LineStyle::kLog);
    options.only_on_terminal = true;
    EpochLine evaluation(options);
    evaluation.begin(std::nullopt, 4, 0, "test");
    evaluation.update(state(2, 0.5));
    evaluation.print("a note");
    evaluation.end({}, false);
  }
  EXPECT_EQ(screen.text(),
            "epoch 1/2  10 steps in 0:05  loss 0.2500  200 samples/s  100 samples/s per rank  1.0 MiB\na note\n");
}

TEST(EpochLine, AnEvaluationHasNoNumber) {
  base::set_env("NO_COLOR", "1");
  EpochScreen screen;
  {
    auto options = screen.options(LineStyle::kTerminal);
    options.only_on_terminal = true;
    EpochLine line(options);
    line.begin(std::nullopt, 4, 0, "test");
    screen.pass(seconds(1));
    line.update(state(2, 0.5));
    line.pause();
  }
  EXPECT_EQ(screen.text(),
            "\r\x1b[2Ktest  [=====>      ]  step 2/4  loss 0.5000  200 samples/s  100 samples/s per rank  ETA 0:01  "
            "1.0 MiB\r\x1b[2K");
  base::unset_env("NO_COLOR");
}

// Of another rank, or of the one that has the line.
TEST(TorchWarnings, AreMessagesOfTheLibraryOnATerminal) {
  const base::Fd screen(::posix_openpt(O_RDWR | O_NOCTTY));
  ::grantpt(screen.get());
  ::unlockpt(screen.get());
  const base::Fd program(::open(::ptsname(screen.get()), O_RDWR | O_NOCTTY));
  base::set_env("TERM", "xterm");
  const base::Fd saved(::dup(STDERR_FILENO));
  ::dup2(program.get(), STDERR_FILENO);
  auto* const before = c10::WarningUtils::get_warning_handler();
  {
    const detail::TorchWarnings outer;
    { const detail::TorchWarnings inner; }
    TORCH_WARN("odd shape");
  }
  EXPECT_EQ(c10::WarningUtils::get_warning_handler(), before);
  ::dup2(saved.get(), STDERR_FILENO);
  char buffer[200] = {};
  ASSERT_GT(::read(screen.get(), buffer, sizeof buffer - 1), 0);
  EXPECT_STREQ(buffer, "\r\x1b[2K[cohort] warning: LibTorch: odd shape\r\n");
  const detail::TorchWarnings elsewhere;
  EXPECT_EQ(c10::WarningUtils::get_warning_handler(), before);
}

TEST(EpochLine, TellsTheMemoryOfThisProcessByItself) {
  EpochScreen screen;
  {
    EpochLine line(screen.options(LineStyle::kLog));
    line.begin(0, 10);
    line.update({.step = 1});
  }
  const std::string text = screen.text();
  EXPECT_TRUE(text.ends_with("iB\n")) << text;
}

TEST(EpochLine, WritesNothingOnOtherRanks) {
  EpochScreen screen;
  {
    EpochLineOptions options = screen.options(LineStyle::kTerminal);
    options.is_enabled = false;
    EpochLine line(options);
    line.begin(0, 10);
    line.update(state(1, 0.5));
    line.print("text");
    line.end(state(10, 0.5));
  }
  EXPECT_EQ(screen.text(), "");
}

TEST(RunSummary, IsATableOfWhatWasAdded) {
  RunSummary summary({.world_size = 2, .low_data = 0.5});
  EXPECT_TRUE(summary.empty());
  EXPECT_EQ(summary.text(), "");
  summary.add({.epoch = 0,
               .seconds = 10,
               .num_samples = 1000,
               .metrics = {{"loss", 0.5}},
               .data_wait_share = 0.4,
               .communication_share = 0.35});
  EXPECT_EQ(summary.epochs().size(), 1U);
  EXPECT_EQ(summary.text(),
            "epoch  time    loss          speed  data  comm  busy\n"
            "-----  ----  ------  -------------  ----  ----  ----\n"
            "    1  0:10  0.5000  100 samples/s   40%   35%   25%\n"
            "total: 0:10 in 1 epoch, 100 samples/s by 2 ranks, 50.0 samples/s each\n"
            "hint: ranks waited for each other 35% of the time; use larger batches, or accumulate gradients over "
            "several before a "
            "step\n");
}

}  // namespace
}  // namespace cohort::train
