#include "cohort/train/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"

namespace cohort::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A pipe to write to and a clock that stands still until told.
class Screen {
 public:
  Screen() : pipe_(base::make_pipe().value()) {}

  ProgressOptions options(LineStyle style) {
    return {.total_steps = 100, .unit = "tokens", .style = style, .fd = pipe_.write_end.get(), .now = [this] {
              return std::chrono::steady_clock::time_point(time_);
            }};
  }
  void pass(milliseconds time) { time_ += time; }
  std::string text() {
    pipe_.write_end.reset();
    std::string all;
    char buffer[4096];
    for (ssize_t count; (count = ::read(pipe_.read_end.get(), buffer, sizeof buffer)) > 0;) all.append(buffer, count);
    return all;
  }

 private:
  base::Pipe pipe_;
  milliseconds time_{0};
};

TEST(Progress, WritesALinePerUpdateToALog) {
  Screen screen;
  {
    ProgressLine progress(screen.options(LineStyle::kLog));
    screen.pass(seconds(2));
    progress.update(10, 50000, {{"loss", 2.5}, {"lr", 3e-4}});
    progress.print("held-out loss 2.6");
    screen.pass(seconds(2));
    progress.update(100, 100000, {{"loss", 1.25}});
  }
  EXPECT_EQ(screen.text(),
            "step 10/100  loss 2.5000  lr 3.00e-04  25.0k tokens/s  ETA 0:18\n"
            "held-out loss 2.6\n"
            "step 100/100  loss 1.2500  25.0k tokens/s  ETA 0:00\n");
}

TEST(Progress, RewritesOneLineOnATerminal) {
  base::set_env("NO_COLOR", "1");
  base::set_env("TERM", "xterm");
  Screen screen;
  {
    ProgressLine progress(screen.options(LineStyle::kTerminal));
    screen.pass(seconds(1));
    progress.update(1, 10, {});
    screen.pass(seconds(1));
    progress.update(2, 20, {});
    progress.print("note");
    screen.pass(seconds(1));
    progress.update(3, 30, {});
  }
  EXPECT_EQ(screen.text(),
            "\r\x1b[2Kstep 1/100  10.0 tokens/s  ETA 1:39\r\x1b[2Kstep 2/100  10.0 tokens/s  ETA 1:38"
            "\r\x1b[2Knote\nstep 2/100  10.0 tokens/s  ETA 1:38\r\x1b[2Kstep 3/100  10.0 tokens/s  ETA 1:37\n");
  base::unset_env("NO_COLOR");
}

TEST(Progress, ColorsATerminalUnlessNoColorIsSet) {
  base::unset_env("NO_COLOR");
  base::set_env("TERM", "xterm");
  Screen screen;
  {
    ProgressLine progress(screen.options(LineStyle::kTerminal));
    screen.pass(seconds(1));
    progress.update(100, 10, {});
  }
  EXPECT_EQ(screen.text(), "\r\x1b[2Kstep 100/100\x1b[2m  10.0 tokens/s  ETA 0:00\x1b[0m\n");
}

TEST(Progress, DropsUpdatesThatComeTooSoonButNeverTheLast) {
  Screen screen;
  {
    ProgressLine progress(screen.options(LineStyle::kLog));
    screen.pass(seconds(1));
    progress.update(1, 1, {});
    screen.pass(milliseconds(4900));
    progress.update(2, 2, {});
    progress.update(100, 100, {});
  }
  EXPECT_EQ(screen.text(), "step 1/100  1.0 tokens/s  ETA 1:39\nstep 100/100  16.9 tokens/s  ETA 0:00\n");
}

TEST(Progress, TheLongestIntervalLeavesTheFirstAndTheLast) {
  Screen screen;
  {
    auto options = screen.options(LineStyle::kLog);
    options.min_interval = milliseconds::max();
    ProgressLine progress(options);
    screen.pass(seconds(1));
    progress.update(1, 1, {});
    screen.pass(seconds(1000));
    progress.update(2, 2, {});
    progress.update(100, 1001, {});
  }
  EXPECT_EQ(screen.text(), "step 1/100  1.0 tokens/s  ETA 1:39\nstep 100/100  1.0 tokens/s  ETA 0:00\n");
}

TEST(Progress, CountsOnlyThisRunAfterAResume) {
  Screen screen;
  {
    ProgressOptions options = screen.options(LineStyle::kLog);
    options.first_step = 50;
    ProgressLine progress(options);
    screen.pass(seconds(10));
    progress.update(60, 1000, {});
  }
  EXPECT_EQ(screen.text(), "step 60/100  100 tokens/s  ETA 0:40\n");
}

TEST(Progress, WritesNothingOnOtherRanks) {
  Screen screen;
  {
    ProgressOptions options = screen.options(LineStyle::kTerminal);
    options.is_enabled = false;
    ProgressLine progress(options);
    progress.update(1, 1, {});
    progress.print("text");
  }
  EXPECT_EQ(screen.text(), "");
}

TEST(Progress, FormatsRatesAndClocks) {
  EXPECT_EQ(format_rate(9.44, "samples"), "9.4 samples/s");
  EXPECT_EQ(format_rate(9999, "tokens"), "9999 tokens/s");
  EXPECT_EQ(format_rate(14930, "tokens"), "14.9k tokens/s");
  EXPECT_EQ(format_rate(2.5e6, "tokens"), "2.5M tokens/s");
  EXPECT_EQ(format_clock(seconds(7)), "0:07");
  EXPECT_EQ(format_clock(seconds(754)), "12:34");
  EXPECT_EQ(format_clock(seconds(3723)), "1:02:03");
}

}  // namespace
}  // namespace cohort::train
