// A save is broken at each of its system calls, one after the other: killed there, or the call fails. Whatever happens, a whole
// checkpoint is found afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/file.h"
#include "cohort/files/checkpoints/checkpoint_draft.h"
#include "cohort/files/checkpoints/checkpoint_list.h"
#include "cohort/files/checkpoints/checkpoint_name.h"
#include "tests/support/fault_points.h"

namespace cohort::files {
namespace {

namespace fs = std::filesystem;

// Fewer calls than this would mean that the faults are not injected at all.
constexpr int kFewestCalls = 10;
constexpr int kMostCalls = 500;

class FaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cohort::test::can_inject_faults()) GTEST_SKIP() << "no ptrace here";
    root_ = base::make_unique_directory(cohort::test::folder_for_faults() + "cohort_faults_").value();
  }
  ~FaultsTest() override {
    std::error_code error;
    fs::remove_all(root_, error);
  }

  std::string path(const std::string& name) const { return root_ + "/" + name; }

  // What a run does at a save: the checkpoint of `step`, then only the newest two stay.
  base::Result<void> save(int64_t step) const {
    remove_leftovers(root_);
    auto draft = CheckpointDraft::begin(root_, step);
    if (!draft) return draft.error();
    const auto text = std::to_string(step);
    for (const char* name : {"weights", "optimizer"}) {
      const auto fd = base::open_for_writing(draft->folder() + "/" + name);
      if (!fd) return fd.error();
      if (auto written = base::write_all(fd->get(), text); !written) return written;
    }
    if (const auto published = draft->publish({}); !published) return published.error();
    if (fs::exists(path(checkpoint_name(step - 2)))) return remove_checkpoint(root_, step - 2);
    return {};
  }

  // As the newest that is whole says. Fails the test where none is, or where one is not what was saved.
  int64_t newest() const {
    const auto list = list_checkpoints(root_, CheckpointCheck::kChecksums).value();
    for (const auto& found : list.checkpoints) {
      EXPECT_TRUE(found.manifest) << found.name << ": " << found.problem;
      if (!found.manifest) continue;
      EXPECT_EQ(base::read_file(path(found.name + "/weights")).value(), std::to_string(found.step));
      EXPECT_EQ(base::read_file(path(found.name + "/optimizer")).value(), std::to_string(found.step));
      return found.step;
    }
    ADD_FAILURE() << "no checkpoint is whole";
    return -1;
  }

  size_t num_names() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(root_), fs::directory_iterator()));
  }

  // The folder as it is before each attempt: steps 2 and 3, and what a run that was killed has left.
  void begin_again() const {
    fs::remove_all(root_);
    fs::create_directory(root_);
    ASSERT_TRUE(save(2).ok());
    ASSERT_TRUE(save(3).ok());
    fs::create_directory(path(".saving-step-00000004-1"));
    ASSERT_TRUE(base::write_file_atomically(path(".saving-step-00000004-1/weights"), "half").ok());
  }

  std::string root_;
};

TEST_F(FaultsTest, KilledAtAnyCallAWholeCheckpointStays) {
  std::set<int64_t> outcomes;
  for (int call = 1;; ++call) {
    begin_again();
    const auto outcome = cohort::test::run_with_fault([&] { return save(4).ok() ? 0 : 1; }, {.call = call});
    SCOPED_TRACE("call " + std::to_string(call) + ", " + outcome.call);
    ASSERT_EQ(outcome.exit_code, outcome.was_reached ? -1 : 0);
    outcomes.insert(newest());
    remove_leftovers(root_);
    EXPECT_LE(num_names(), 3u);
    EXPECT_TRUE(list_checkpoints(root_, CheckpointCheck::kSizes).value().temporary.empty());
    ASSERT_TRUE(save(5).ok());
    EXPECT_EQ(newest(), 5);
    ASSERT_LT(call, kMostCalls);
    if (outcome.was_reached) continue;
    EXPECT_GE(call, kFewestCalls);
    break;
  }
  EXPECT_EQ(outcomes, (std::set<int64_t>{3, 4}));
}

TEST_F(FaultsTest, KilledWhileOneOfTheSameStepIsReplaced) {
  for (int call = 1;; ++call) {
    begin_again();
    const auto outcome = cohort::test::run_with_fault([&] { return save(3).ok() ? 0 : 1; }, {.call = call});
    SCOPED_TRACE("call " + std::to_string(call) + ", " + outcome.call);
    EXPECT_EQ(newest(), 3);
    ASSERT_LT(call, kMostCalls);
    if (!outcome.was_reached) break;
  }
}

TEST_F(FaultsTest, AnyCallThatFailsIsAnErrorOrNoLoss) {
  for (const int error_number : {ENOSPC, EIO}) {
    for (int call = 1;; ++call) {
      begin_again();
      const auto body = [&] {
        const auto saved = save(4);
        if (!saved) (void)base::write_file_atomically(path("error"), saved.error().describe());
        return saved.ok() ? 0 : 1;
      };
      const auto outcome = cohort::test::run_with_fault(body, {.call = call, .error_number = error_number});
      SCOPED_TRACE("call " + std::to_string(call) + ", " + outcome.call);
      ASSERT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 1) << outcome.exit_code;
      const int64_t found = newest();
      EXPECT_TRUE(found == 4 || (found == 3 && outcome.exit_code == 1));
      if (outcome.exit_code == 1) {
        EXPECT_THAT(base::read_file(path("error")).value(),
                    testing::HasSubstr(error_number == EIO ? "(EIO)" : "(ENOSPC)"));
      }
      remove_leftovers(root_);
      EXPECT_TRUE(list_checkpoints(root_, CheckpointCheck::kSizes).value().temporary.empty());
      ASSERT_LT(call, kMostCalls);
      if (!outcome.was_reached) break;
    }
  }
}

// What a power cut leaves cannot be tried here: that everything is on disk before it has its name, and the name after it. The
// first write says whose lock it is.
TEST_F(FaultsTest, IsOnDiskBeforeItIsRenamed) {
  const auto outcome = cohort::test::run_with_fault([&] { return save(4).ok() ? 0 : 1; }, {});
  std::string calls;
  for (const auto& call : outcome.calls) {
    if (call == "write" || call == "fsync" || call.starts_with("rename")) calls += call + " ";
  }
  EXPECT_EQ(calls, "write write write fsync fsync write fsync fsync renameat2 fsync ");
}

TEST_F(FaultsTest, ASingleFileIsTheOldOneOrTheNewOne) {
  const auto file = path("file");
  std::set<std::string> outcomes;
  for (const int error_number : {0, ENOSPC, EIO}) {
    for (int call = 1;; ++call) {
      ASSERT_TRUE(base::write_file_atomically(file, "old").ok());
      const auto outcome =
          cohort::test::run_with_fault([&] { return base::write_file_atomically(file, "new").ok() ? 0 : 1; },
                                       {.call = call, .error_number = error_number});
      SCOPED_TRACE("call " + std::to_string(call) + ", " + outcome.call);
      const auto text = base::read_file(file).value();
      EXPECT_TRUE(text == "old" || text == "new") << text;
      EXPECT_TRUE(outcome.exit_code != 0 || text == "new");
      outcomes.insert(text);
      // A process that is killed between giving its file a first name and the right one leaves that: the file is whole by then.
      EXPECT_TRUE(error_number == 0 || num_names() == 1u);
      for (const auto& entry : fs::directory_iterator(root_)) {
        if (entry.path() != file) fs::remove(entry.path());
      }
      ASSERT_LT(call, kMostCalls);
      if (!outcome.was_reached) break;
    }
  }
  EXPECT_EQ(outcomes.size(), 2u);
}

}  // namespace
}  // namespace cohort::files
