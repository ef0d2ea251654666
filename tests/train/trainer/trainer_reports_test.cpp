// What a Trainer shows and logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "tests/train/trainer/small_task.h"

namespace cohort::train {
namespace {

using test::error_of;
using test::Loader;
using test::quiet;
using test::small_data;
using test::SmallTask;
using testing::HasSubstr;
using testing::Not;

// What a Trainer's options show of a task.
std::string shown_of(TrainerOptions options, int64_t num_validation, std::chrono::milliseconds pause) {
  struct Pause : Callback {
    explicit Pause(std::chrono::milliseconds time) : time_(time) {}
    void on_validation_start(Trainer&) override { std::this_thread::sleep_for(time_); }
    std::chrono::milliseconds time_;
  };
  options.callbacks = {std::make_shared<Pause>(pause)};
  SmallTask task;
  Trainer trainer(std::move(options));
  testing::internal::CaptureStdout();
  trainer.fit(task, Loader(small_data(40), {.batch_size = 4}), Loader(small_data(num_validation), {.batch_size = 4}));
  return testing::internal::GetCapturedStdout();
}

TEST(Trainer, DoesNotShowCommunicationThatIsNotMeasured) {
  EXPECT_THAT(shown_of({.strategy = {.kind = "single"}, .max_epochs = 1}, 4, {}), HasSubstr("comm 0%"));
  const std::string text = shown_of({.strategy = {.kind = "data_parallel"}, .max_epochs = 1}, 4, {});
  EXPECT_THAT(text, Not(HasSubstr("comm 0%")));
}

// The whole seconds after `words`, as "1:05".
int64_t seconds_after(const std::string& text, const std::string& words) {
  const size_t begin = text.find(words);
  TORCH_CHECK(begin != std::string::npos, words, " is not in ", text);
  const char* const minutes = text.c_str() + begin + words.size();
  const char* const colon = std::strchr(minutes, ':');
  return 60 * std::atoll(minutes) + std::atoll(colon + 1);
}

TEST(Trainer, AnEpochsTimeIsThatOfTraining) {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = shown_of({.max_epochs = 1, .val_check_interval = 0.5}, 4, std::chrono::seconds(2));
  // Two validations have paused; times are rounded.
  const double most = Seconds(std::chrono::steady_clock::now() - begin).count() - 2 * 2 + 1;
  EXPECT_LE(static_cast<double>(seconds_after(text, "total: ")), most) << text;
  EXPECT_LE(static_cast<double>(seconds_after(text, "epoch 1/1  10 steps in ")), most) << text;
}

TEST(Trainer, PrintsWithoutProgressToo) {
  Trainer trainer(quiet({}));
  testing::internal::CaptureStdout();
  trainer.print("a line");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a line\n");
}

TEST(Trainer, WritesTheNumbersBeforeAFailure) {
  struct Kept : Logger {
    void log_metrics(int64_t, const Metrics&) override { ++num_open; }
    void flush() override {
      num_open = 0;
      TORCH_CHECK(false, "the disk is full");
    }
    void close() override {}
    int num_open = 0;
  };
  struct Fail : Callback {
    void on_train_batch_end(Trainer& trainer, const StepReport&) override { TORCH_CHECK(trainer.step() < 2, "enough"); }
  };
  const auto logger = std::make_shared<Kept>();
  SmallTask task;
  Trainer trainer(quiet({.max_epochs = 1,
                         .callbacks = {std::make_shared<Fail>()},
                         .make_logger = [&](int64_t) { return logger; },
                         .log_every_n_steps = 1}));
  testing::internal::CaptureStderr();
  EXPECT_EQ(error_of([&] { trainer.fit(task, Loader(small_data(8), {.batch_size = 4})); }), "enough");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: Trainer: a log is incomplete\n  caused by: the disk is full\n");
  EXPECT_EQ(logger->num_open, 0);
}

TEST(Trainer, ALogThatTheDiskRefusesDoesNotEndTraining) {
  struct Full : Logger {
    void log_metrics(int64_t step, const Metrics&) override {
      TORCH_CHECK_VALUE(step < 8, "a wrong name");
      ++num_refused;
      TORCH_CHECK(false, "the disk is full");
    }
    void flush() override {}
    void close() override {}
    int num_refused = 0;
  };
  const auto full = std::make_shared<Full>();
  SmallTask task;
  Trainer trainer(quiet({.max_epochs = 1, .make_logger = [&](int64_t) { return full; }, .log_every_n_steps = 1}));
  testing::internal::CaptureStderr();
  EXPECT_EQ(trainer.fit(task, Loader(small_data(20), {.batch_size = 4})).steps, 5);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: Trainer: a log is incomplete\n  caused by: the disk is full\n");
  EXPECT_GE(full->num_refused, 5);
  // What the program does wrong is still an error.
  Trainer longer(quiet({.max_epochs = 1, .make_logger = [&](int64_t) { return full; }, .log_every_n_steps = 1}));
  EXPECT_EQ(error_of([&] { longer.fit(task, Loader(small_data(40), {.batch_size = 4})); }), "a wrong name");
}

}  // namespace
}  // namespace cohort::train
