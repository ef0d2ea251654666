// Of one process; of several ranks: checkpointer_ranks_test.cpp.
#include "cohort/checkpoint/checkpointer/checkpointer.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/process/lock_file.h"
#include "cohort/base/system/host.h"
#include "tests/checkpoint/rank_files.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/data/error_text.h"
#include "tests/support/fault_points.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::error_text;
using test::rank_files;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

ShardedStateDict state_of(double value) {
  ShardedStateDict state;
  state.insert("weight", at::full({3, 4}, value));
  state.insert("bias", at::full({2}, value, at::kDouble));
  return state;
}

bool is_state_of(const ShardedStateDict& state, double value) {
  return state["weight"].tensor.equal(at::full({3, 4}, value)) &&
         state["bias"].tensor.equal(at::full({2}, value, at::kDouble));
}

double loaded_value(Checkpointer& checkpoints, std::optional<int64_t> expected_step) {
  ShardedStateDict state = state_of(-1);
  EXPECT_EQ(checkpoints.load_latest(state), expected_step);
  const double value = state["bias"].tensor[0].item<double>();
  EXPECT_TRUE(is_state_of(state, value));
  return value;
}

// Sorted names of what a folder holds beside its lock.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::erase(names, ".lock");
  std::sort(names.begin(), names.end());
  return names;
}

// Writes only once `gate` has a value.
CheckpointFormat gated(std::shared_future<void> gate) {
  CheckpointFormat format = rank_files();
  format.save = [gate, save = format.save](const auto& state, const auto& folder, const auto& group) {
    gate.wait();
    return save(state, folder, group);
  };
  return format;
}

CheckpointFormat failing(const std::string& text) {
  CheckpointFormat format = rank_files();
  format.save = [text](const auto&, const std::string& folder, const auto&) -> std::vector<std::string> {
    std::ofstream(folder + "/half") << "half";
    throw std::runtime_error(text);
  };
  return format;
}

TEST(Checkpointer, SavesWhatTheStateWasWhenSaveReturned) {
  const TemporaryFolder folder;
  std::promise<void> gate;
  Checkpointer checkpoints(folder.file("run"), {.format = gated(gate.get_future().share())});
  EXPECT_EQ(loaded_value(checkpoints, std::nullopt), -1);
  ShardedStateDict state = state_of(1);
  EXPECT_TRUE(checkpoints.save(state, 7, {.metric = 0.5, .metadata = {{"epoch", "3"}}}));
  state["weight"].tensor.zero_();
  state["bias"].tensor.zero_();
  EXPECT_FALSE(fs::exists(folder.file("run/step-00000007")));
  gate.set_value();
  checkpoints.wait();
  const auto latest = checkpoints.latest();
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->step, 7);
  EXPECT_EQ(latest->folder, folder.file("run/step-00000007"));
  EXPECT_EQ(latest->info.metric, 0.5);
  EXPECT_EQ(latest->info.metadata.at("epoch"), "3");
  EXPECT_EQ(loaded_value(checkpoints, 7), 1);
  EXPECT_THAT(names_in(folder.file("run")), ElementsAre("step-00000007"));
}

TEST(Checkpointer, ASecondSaveWaitsAndBothAreThere) {
  const TemporaryFolder folder;
  Checkpointer checkpoints(folder.file("run"), {.format = rank_files()});
  for (int step = 1; step <= 5; ++step) EXPECT_TRUE(checkpoints.save(state_of(step), step));
  EXPECT_EQ(loaded_value(checkpoints, 5), 5);
  for (int step = 1; step <= 5; ++step) {
    ShardedStateDict state = state_of(-1);
    EXPECT_EQ(checkpoints.load(state, step).step, step);
    EXPECT_TRUE(is_state_of(state, step));
  }
}

TEST(Checkpointer, ASecondSaveIsRefusedWhereThatIsAsked) {
  const TemporaryFolder folder;
  std::promise<void> gate;
  Checkpointer checkpoints(folder.file("run"),
                           {.when_busy = WhenBusy::kRefuse, .format = gated(gate.get_future().share())});
  EXPECT_TRUE(checkpoints.save(state_of(1), 1));
  EXPECT_FALSE(checkpoints.save(state_of(2), 2));
  gate.set_value();
  checkpoints.wait();
  EXPECT_TRUE(checkpoints.save(state_of(3), 3));
  checkpoints.wait();
  EXPECT_THAT(names_in(folder.file("run")), ElementsAre("step-00000001", "step-00000003"));
}

TEST(Checkpointer, MemoryOfTheCopyIsUsedAgain) {
  const TemporaryFolder folder;
  std::vector<const void*> places;
  CheckpointFormat format = rank_files();
  format.save = [&places, save = format.save](const auto& state, const auto& to, const auto& group) {
    places.push_back(state["weight"].tensor.const_data_ptr());
    return save(state, to, group);
  };
  Checkpointer checkpoints(folder.file("run"), {.format = format});
  const ShardedStateDict state = state_of(1);
  for (int step = 1; step <= 2; ++step) checkpoints.save(state, step);
  checkpoints.wait();
  EXPECT_EQ(places[0], places[1]);
  EXPECT_NE(places[0], state["weight"].tensor.const_data_ptr());
}

TEST(Checkpointer, KeepsTheLastMultiplesAndTheBest) {
  const TemporaryFolder folder;
  Checkpointer checkpoints(folder.file("run"),
                           {.keep_last = 2, .keep_every = 4, .keep_best = 1, .format = rank_files()});
  const double metrics[] = {0.9, 0.8, 0.1, 0.7, 0.6, 0.5, 0.4};
  for (int step = 1; step <= 7; ++step) checkpoints.save(state_of(step), step, {.metric = metrics[step - 1]});
  checkpoints.wait();
  EXPECT_THAT(names_in(folder.file("run")),
              ElementsAre("step-00000003", "step-00000004", "step-00000006", "step-00000007"));
}

TEST(Checkpointer, LatestSkipsWhatIsDamagedOrUnfinishedAndSaysSo) {
  const TemporaryFolder folder;
  Checkpointer checkpoints(folder.file("run"), {.format = rank_files()});
  for (int step = 1; step <= 4; ++step) checkpoints.save(state_of(step), step);
  checkpoints.wait();
  fs::remove(folder.file("run/step-00000004/manifest.json"));
  fs::resize_file(folder.file("run/step-00000003/rank-0.safetensors"), 50);
  std::fstream(folder.file("run/step-00000002/rank-0.safetensors"), std::ios::in | std::ios::out)
      .seekp(-1, std::ios::end)
      .put('x');
  testing::internal::CaptureStderr();
  EXPECT_EQ(loaded_value(checkpoints, 1), 1);
  const std::string warnings = testing::internal::GetCapturedStderr();
  const std::string start = "[cohort] warning: Checkpointer: skips \"" + folder.file("run");
  EXPECT_THAT(warnings, HasSubstr(start + "/step-00000004\": it is unfinished: it has no manifest.json\n"));
  EXPECT_THAT(warnings,
              HasSubstr(start + "/step-00000003\": \"rank-0.safetensors\" has 50 bytes, but the manifest says "));
  EXPECT_THAT(warnings, HasSubstr(start + "/step-00000002\": \"rank-0.safetensors\" is damaged: its checksum is "));
  ShardedStateDict state = state_of(-1);
  EXPECT_EQ(error_text<c10::Error>([&] { checkpoints.load(state, 9); }),
            "[cohort] Checkpointer: \"" + folder.file("run") +
                "\" has no complete checkpoint of step 9\n"
                "  hint: call latest() for the newest one, or list all with `cohort ckpt ls " +
                folder.file("run") + "`");
}

TEST(Checkpointer, AnErrorOfASaveComesAtTheNextCall) {
  const TemporaryFolder folder;
  const std::string expected =
      "[cohort] Checkpointer: cannot save step 2 in \"" + folder.file("run") +
      "\"\n  caused by: no space: No space left on device (ENOSPC)\n"
      "  hint: the checkpoints that were there are untouched; free some space, or keep fewer of them (keep_last)";
  { Checkpointer(folder.file("run"), {.format = rank_files()}).save(state_of(1), 1); }
  Checkpointer checkpoints(folder.file("run"), {.format = failing("no space: No space left on device (ENOSPC)")});
  checkpoints.save(state_of(2), 2);
  EXPECT_EQ(error_text<c10::Error>([&] { checkpoints.wait(); }), expected);
  EXPECT_EQ(checkpoints.last_error(), expected);
  checkpoints.wait();
  checkpoints.save(state_of(2), 2);
  EXPECT_EQ(error_text<c10::Error>([&] { checkpoints.save(state_of(3), 3); }), expected);
  EXPECT_THAT(names_in(folder.file("run")), ElementsAre("step-00000001"));
}

TEST(Checkpointer, AnErrorNobodyHeardIsAWarningAtTheEnd) {
  const TemporaryFolder folder;
  testing::internal::CaptureStderr();
  { Checkpointer(folder.file("run"), {.format = failing("broken")}).save(state_of(2), 2); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: Checkpointer: cannot save step 2 in \"" + folder.file("run") +
                "\"\n  caused by: broken\n  hint: the checkpoints that were there are untouched\n");
}

TEST(Checkpointer, TrainingGoesOnWhereThatIsAsked) {
  const TemporaryFolder folder;
  testing::internal::CaptureStderr();
  {
    Checkpointer checkpoints(folder.file("run"), {.on_error = OnSaveError::kContinue, .format = failing("broken")});
    for (int step = 1; step <= 2; ++step) EXPECT_TRUE(checkpoints.save(state_of(step), step));
    checkpoints.wait();
    EXPECT_THAT(checkpoints.last_error(), HasSubstr("cannot save step 2"));
  }
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("cannot save step 1"));
  EXPECT_THAT(warnings, HasSubstr("cannot save step 2"));
  EXPECT_EQ(warnings.find("cannot save step 2"), warnings.rfind("cannot save step 2"));
  EXPECT_TRUE(fs::is_empty(folder.file("run")));
}

TEST(Checkpointer, AFolderThatVanishesWhileItSaves) {
  const TemporaryFolder folder;
  CheckpointFormat format = rank_files();
  bool vanishes = true;
  format.save = [&, save = format.save](const auto& state, const auto& to, const auto& group) {
    auto written = save(state, to, group);
    if (std::exchange(vanishes, false)) fs::remove_all(folder.file("run"));
    return written;
  };
  Checkpointer checkpoints(folder.file("run"), {.asynchronous = false, .format = format});
  const std::string text = error_text<c10::Error>([&] { checkpoints.save(state_of(1), 1); });
  EXPECT_THAT(text, HasSubstr("cannot save step 1 in \"" + folder.file("run") + "\"\n  caused by: cannot open \""));
  EXPECT_THAT(text, HasSubstr("No such file or directory (ENOENT)"));
  checkpoints.save(state_of(2), 2);
  EXPECT_EQ(loaded_value(checkpoints, 2), 2);
}

TEST(Checkpointer, AFileInThePlaceOfItsFolder) {
  const TemporaryFolder folder;
  folder.write("run", "text");
  Checkpointer checkpoints(folder.file("run"), {.asynchronous = false, .format = rank_files()});
  EXPECT_EQ(error_text<c10::Error>([&] { checkpoints.save(state_of(1), 1); }),
            "[cohort] Checkpointer: cannot save step 1 in \"" + folder.file("run") +
                "\"\n  caused by: cannot create folder \"" + folder.file("run") +
                "\": Not a directory (ENOTDIR)\n  hint: the checkpoints that were there are untouched");
  EXPECT_EQ(error_text<c10::Error>([&] { checkpoints.latest(); }),
            "[cohort] Checkpointer: cannot list the folder \"" + folder.file("run") + "\": Not a directory (ENOTDIR)");
}

// Another job: its lock is none of this process's Checkpointers.
TEST(Checkpointer, AnotherJobInItsFolder) {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), lock = run + "/.lock";
  fs::create_directory(run);
  const std::string owner = "pid " + std::to_string(::getpid()) + " on " + base::host_name();
  const std::string text =
      "another job saves its checkpoints in \"" + run + "\": " + owner + " has locked \"" + lock + "\"";
  const std::string hint = "\n  hint: give each job a folder of its own, or end the other one";
  {
    const auto other = base::LockFile::try_take(lock);
    ASSERT_TRUE(other && *other);
    EXPECT_EQ(error_text<c10::Error>([&] { Checkpointer(run, {.every_steps = 1, .format = rank_files()}); }),
              "[cohort] Checkpointer: " + text + hint);
    // Who only looks is let in.
    Checkpointer reader(run, {.asynchronous = false, .format = rank_files()});
    EXPECT_FALSE(reader.latest());
    EXPECT_EQ(error_text<c10::Error>([&] { reader.save(state_of(1), 1); }),
              "[cohort] Checkpointer: cannot save step 1 in \"" + run + "\"\n  caused by: " + text + hint +
                  "\n  hint: the checkpoints that were there are untouched");
  }
  Checkpointer first(run, {.every_steps = 1, .asynchronous = false, .format = rank_files()});
  Checkpointer second(run, {.every_steps = 1, .asynchronous = false, .format = rank_files()});  // of the same job
  first.save(state_of(1), 1);
  second.save(state_of(2), 2);
  EXPECT_EQ(base::LockFile::owner(lock), owner);
}

TEST(Checkpointer, ALockOfAKilledJobIsTakenOverAndGoesWithTheRun) {
  const TemporaryFolder folder;
  fs::create_directory(folder.file("run"));
  folder.write("run/.lock", "pid 1 on another\n");
  {
    Checkpointer checkpoints(folder.file("run"), {.every_steps = 1, .format = rank_files()});
    EXPECT_EQ(base::LockFile::owner(folder.file("run/.lock")),
              "pid " + std::to_string(::getpid()) + " on " + base::host_name());
  }
  EXPECT_TRUE(fs::is_empty(folder.file("run")));
}

TEST(Checkpointer, RemovesWhatAKilledRunHasLeft) {
  const TemporaryFolder folder;
  fs::create_directories(folder.file("run/.saving-step-00000009-12/more"));
  folder.write("run/.saving-step-00000009-12/more/half", "half");
  const Checkpointer checkpoints(folder.file("run"), {.format = rank_files()});
  EXPECT_TRUE(fs::is_empty(folder.file("run")));
}

TEST(Checkpointer, SavesEverySoManySteps) {
  const TemporaryFolder folder;
  Checkpointer checkpoints(folder.file("run"), {.every_steps = 3, .format = rank_files()});
  int num_states = 0;
  for (int step = 1; step <= 7; ++step) {
    EXPECT_EQ(checkpoints.maybe_save([&] { return ++num_states, state_of(step); }, step), step % 3 == 0);
  }
  EXPECT_EQ(num_states, 2);
  EXPECT_EQ(loaded_value(checkpoints, 6), 6);
  EXPECT_FALSE(checkpoints.stop_requested());
}

TEST(Checkpointer, SavesWhenTheTimeHasPassed) {
  const TemporaryFolder folder;
  Checkpointer checkpoints(folder.file("run"), {.every = std::chrono::seconds(2), .format = rank_files()});
  const auto state = [] { return state_of(1); };
  EXPECT_FALSE(checkpoints.maybe_save(state, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_TRUE(checkpoints.maybe_save(state, 2));
  EXPECT_FALSE(checkpoints.maybe_save(state, 3));
}

TEST(Checkpointer, SavesOnceWhenASignalAsksToStop) {
  const TemporaryFolder folder;
  const auto before = std::signal(SIGUSR2, SIG_IGN);
  {
    Checkpointer checkpoints(folder.file("run"), {.stop_signals = {SIGUSR2}, .format = rank_files()});
    EXPECT_FALSE(checkpoints.maybe_save([] { return state_of(1); }, 1));
    std::raise(SIGUSR2);
    EXPECT_FALSE(checkpoints.stop_requested());
    EXPECT_TRUE(checkpoints.maybe_save([] { return state_of(2); }, 2));
    EXPECT_TRUE(checkpoints.stop_requested());
    EXPECT_FALSE(checkpoints.maybe_save([] { return state_of(3); }, 3));
    EXPECT_EQ(loaded_value(checkpoints, 2), 2);
  }
  EXPECT_EQ(std::signal(SIGUSR2, before), SIG_IGN);
}

TEST(Checkpointer, SavesTheLastCopyWhenAnExceptionComes) {
  const TemporaryFolder folder;
  Checkpointer checkpoints(folder.file("run"), {.every_steps = 4, .snapshot_every_steps = 1, .format = rank_files()});
  ShardedStateDict state = state_of(0);
  const auto train = [&] {
    for (int step = 1;; ++step) {
      state["weight"].tensor.fill_(step);
      if (step == 7) throw std::out_of_range("the seventh");  // the state is half of step 7
      state["bias"].tensor.fill_(step);
      checkpoints.maybe_save([&] { return state; }, step);
    }
  };
  EXPECT_THROW(checkpoints.run(train), std::out_of_range);
  EXPECT_EQ(loaded_value(checkpoints, 6), 6);
  EXPECT_THAT(names_in(folder.file("run")), ElementsAre("step-00000004", "step-00000006"));
}

TEST(Checkpointer, AnExceptionStaysWhatItWasWhereNothingCanBeSaved) {
  const TemporaryFolder folder;
  testing::internal::CaptureStderr();
  {
    Checkpointer checkpoints(folder.file("run"), {.snapshot_every_steps = 1, .format = failing("broken")});
    EXPECT_THROW(checkpoints.run([&] {
      checkpoints.maybe_save([] { return state_of(1); }, 1);
      throw std::out_of_range("first");
    }),
                 std::out_of_range);
  }
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "[cohort] warning: Checkpointer: nothing was saved after an exception: Checkpointer: cannot save step 1 in \"" +
          folder.file("run") + "\"\n  caused by: broken\n  hint: the checkpoints that were there are untouched\n");
}

TEST(Checkpointer, WritesShardedCheckpointsWhereNothingElseIsSaid) {
  const TemporaryFolder folder;
  Checkpointer checkpoints(folder.file("run"));
  ShardedStateDict state = state_of(1);
  state.insert("epoch", StateValue(c10::IValue(3)));
  checkpoints.save(state, 1);
  ShardedStateDict loaded = state_of(-1);
  loaded.insert("epoch", StateValue(c10::IValue(0)));
  EXPECT_EQ(checkpoints.load_latest(loaded), 1);
  EXPECT_TRUE(is_state_of(loaded, 1));
  EXPECT_EQ(loaded["epoch"].value.toInt(), 3);
  EXPECT_TRUE(fs::exists(folder.file("run/step-00000001/model.safetensors.index.json")));
}

TEST(Checkpointer, OptionsMessages) {
  const auto text = [](const CheckpointerOptions& options) {
    return error_text<c10::ValueError>([&] { Checkpointer("nowhere", options); });
  };
  EXPECT_EQ(
      text({.keep_last = 0}),
      "[cohort] Checkpointer: keep_last is at least 1, but got 0\n  hint: leave it out, or set it to std::nullopt");
  EXPECT_EQ(text({.every = std::chrono::milliseconds(-1)}),
            "[cohort] Checkpointer: every is at least 1, but got -1\n  hint: leave it out, or set it to std::nullopt");
  EXPECT_EQ(text({.keep_last = 1, .keep_best = -1}), "[cohort] Checkpointer: keep_best is not negative, but got -1");
  EXPECT_EQ(
      text({.keep_best = 1}),
      "[cohort] Checkpointer: keep_every and keep_best say what is kept besides the last ones, but without keep_last "
      "all are kept\n"
      "  hint: set keep_last to at least 1");
  CheckpointFormat half = rank_files();
  half.load = nullptr;
  EXPECT_EQ(text({.format = half}), "[cohort] Checkpointer: its format lacks a function to save or to load");
  EXPECT_EQ(text({.stop_signals = {SIGKILL}, .format = rank_files()}),
            "[cohort] Checkpointer: no process can handle SIGKILL\n"
            "  hint: use signals such as SIGTERM, SIGINT or SIGUSR1");
  Checkpointer checkpoints("nowhere", {.format = rank_files()});
  EXPECT_EQ(error_text<c10::ValueError>([&] { checkpoints.save(state_of(1), -1); }),
            "[cohort] Checkpointer: a step is not negative, but got -1");
}

// A save is broken at each of its system calls: tests/files/checkpoints/faults_test.cpp for what is below.
TEST(CheckpointerFaults, KilledOrRefusedAtAnyCallAWholeCheckpointLoads) {
  if (!cohort::test::can_inject_faults()) GTEST_SKIP() << "no ptrace here";
  for (const int error_number : {0, ENOSPC, EROFS}) {
    for (int call = 1;; ++call) {
      const TemporaryFolder folder(cohort::test::folder_for_faults());
      { Checkpointer(folder.file("run"), {.format = rank_files()}).save(state_of(1), 1); }
      const auto body = [&] {
        Checkpointer checkpoints(folder.file("run"), {.keep_last = 1, .format = rank_files()});
        checkpoints.save(state_of(2), 2);
        try {
          checkpoints.wait();
        } catch (const c10::Error& error) {
          folder.write("error", error.what_without_backtrace());
          return 1;
        }
        return 0;
      };
      const auto outcome = cohort::test::run_with_fault(body, {.call = call, .error_number = error_number});
      SCOPED_TRACE("call " + std::to_string(call) + ", " + outcome.call + ", error " + std::to_string(error_number));
      if (error_number == 0) {
        ASSERT_EQ(outcome.exit_code, outcome.was_reached ? -1 : 0);
      } else {
        ASSERT_THAT(outcome.exit_code, testing::AnyOf(0, 1));
      }
      if (outcome.exit_code == 1) {
        EXPECT_THAT(folder.read("error"), HasSubstr("cannot save step 2"));
        EXPECT_THAT(folder.read("error"), HasSubstr(error_number == EROFS ? "(EROFS)" : "(ENOSPC)"));
      }
      Checkpointer checkpoints(folder.file("run"), {.format = rank_files()});
      const auto latest = checkpoints.latest();
      ASSERT_TRUE(latest);
      EXPECT_TRUE(outcome.exit_code != 0 || latest->step == 2);
      EXPECT_EQ(loaded_value(checkpoints, latest->step), static_cast<double>(latest->step));
      EXPECT_THAT(names_in(folder.file("run")), testing::Each(testing::StartsWith("step-")));
      ASSERT_LT(call, 500);
      if (!outcome.was_reached) break;
    }
  }
}

}  // namespace
}  // namespace cohort::checkpoint
