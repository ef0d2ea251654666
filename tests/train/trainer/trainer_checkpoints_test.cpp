// Which checkpoints a run goes on from, and what is shown of one that ends early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/temporary_folder.h"
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

// A run of two steps in `folder`, or what it says instead.
std::string two_steps(const CheckpointOptions& options) {
  SmallTask task;
  Trainer trainer(quiet({.max_steps = 2, .checkpoint = options}));
  return error_of<c10::ValueError>([&] { trainer.fit(task, Loader(small_data(20), {.batch_size = 4})); });
}

TEST(Trainer, DoesNotMixCheckpointsOfTwoRuns) {
  const cohort::test::TemporaryFolder folder;
  const std::string path = folder.file("run");
  EXPECT_EQ(two_steps({.folder = path, .resume = Resume::kNever}), "no error");
  EXPECT_EQ(two_steps({.folder = path, .resume = Resume::kNever}),
            "[cohort] Trainer: \"" + path +
                "\" has checkpoints of another run, up to step 2, so a new run cannot begin there\n  hint: remove the "
                "folder, name another one, or set checkpoint.resume = Resume::kIfThere");
  EXPECT_EQ(two_steps({.folder = path, .resume = Resume::kMust}), "no error");
  EXPECT_EQ(two_steps({.folder = folder.file("other"), .resume = Resume::kMust}),
            "[cohort] Trainer: there is no checkpoint in \"" + folder.file("other") +
                "\" to resume from\n  hint: set checkpoint.resume = Resume::kIfThere to begin a new run in this case");
}

TEST(Trainer, GoesOnWithTheSameSettingsAlone) {
  const cohort::test::TemporaryFolder folder;
  const std::string path = folder.file("run");
  EXPECT_EQ(two_steps({.folder = path, .settings = {{"width", int64_t{16}}, {"name", std::string("a")}}}), "no error");
  EXPECT_EQ(two_steps({.folder = path, .settings = {{"width", int64_t{16}}, {"new", 0.5}}}), "no error");
  EXPECT_EQ(two_steps({.folder = path, .settings = {{"name", std::string("a")}, {"width", int64_t{32}}}}),
            "[cohort] Trainer: the checkpoint in \"" + path +
                "\" was made with width = 16, but this run has 32\n  hint: resume with the settings that the run began "
                "with, or begin a new run in another folder");
}

TEST(Trainer, SaysThatAllIsDoneAlready) {
  const cohort::test::TemporaryFolder folder;
  const CheckpointOptions checkpoint{.folder = folder.file("run")};
  const auto fit = [&](TrainerOptions options) {
    SmallTask task;
    Trainer trainer(std::move(options));
    testing::internal::CaptureStdout();
    trainer.fit(task, Loader(small_data(8), {.batch_size = 4}));
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(fit({.max_epochs = 2, .checkpoint = checkpoint}), Not(HasSubstr("nothing is left")));
  EXPECT_EQ(fit({.max_epochs = 2, .checkpoint = checkpoint}),
            "resumes after step 4 of \"" + checkpoint.folder +
                "\" (epoch 2, batch 0)\nnothing is left to train: all 2 epochs are done already; raise the limit to "
                "continue, or name another checkpoint folder to begin a new run\n");
  EXPECT_THAT(fit({.max_steps = 4, .checkpoint = checkpoint}), HasSubstr("nothing is left to train: all 4 steps are"));
}

TEST(Trainer, ShowsAnEpochThatWasNotFinished) {
  SmallTask task;
  Trainer trainer({.max_steps = 3});
  testing::internal::CaptureStdout();
  trainer.fit(task, Loader(small_data(40), {.batch_size = 4}));
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("epoch 1  3 steps in 0:0"));
  EXPECT_THAT(text, HasSubstr("total"));
}

}  // namespace
}  // namespace cohort::train
