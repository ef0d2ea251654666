// Disks that are full or cannot be written, in a mount of this process's own: what was there stays, and says what is wrong.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/require.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::MatchesRegex;

// Where mounting is not allowed, nothing is tested.
class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    is_mounted_ = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                  mount("none", folder_.file("").c_str(), "tmpfs", 0, "size=512k") == 0;
    if (!is_mounted_) GTEST_SKIP() << "needs the right to mount";
  }
  void TearDown() override { EXPECT_TRUE(!is_mounted_ || umount(folder_.file("").c_str()) == 0); }

  void make_read_only() const {
    ASSERT_EQ(mount("none", folder_.file("").c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=512k"), 0);
  }
  std::string path(const std::string& name) const { return folder_.file(name); }
  std::string read_only() const {
    auto folder = path("");
    folder.pop_back();
    return "\n  caused by: cannot create a file in \"" + folder +
           "\": Read-only file system (EROFS)\n  hint: check that the folder exists and is writable";
  }
  std::vector<std::string> names_below(const std::string& name = "") const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(path(name)))
      if (!entry.is_directory()) names.push_back(fs::relative(entry.path(), path(name)).string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  TemporaryFolder folder_;
  bool is_mounted_ = false;
};

// "only 496.0 KiB", whatever the file system takes for itself.
std::string without_amount(std::string text) {
  const auto begin = text.find("only ");
  const auto end = text.find(" are free there", begin);
  return end == std::string::npos ? text : text.replace(begin, end - begin, "only SOME");
}

constexpr const char* kRoomHint = "\n  hint: only SOME are free there; free some space, or choose another disk";

ShardedStateDict small_state(double value) {
  ShardedStateDict state;
  state.insert("weight", at::full({1000}, value));
  return state;
}

// What a Checkpointer says of step 2, which is too large. Folders of unfinished saves have names of their own.
void expect_full(const std::string& text, const std::string& folder) {
  const std::string saving = "\"" + folder + "/\\.saving-step-00000002-[0-9a-f]*\"";
  EXPECT_THAT(without_amount(text),
              MatchesRegex("\\[cohort\\] Checkpointer: cannot save step 2 in \"" + folder +
                           "\"\n  caused by: save_sharded: cannot save " + saving +
                           "\n  caused by: cannot take 4.0 MiB for \"model-00001-of-00001.safetensors\" in " + saving +
                           ": No space left on device \\(ENOSPC\\)" + kRoomHint +
                           "\n  hint: the checkpoints that were there are untouched; free some space, or keep fewer of "
                           "them \\(keep_last\\)"));
}

// 4 MiB.
ShardedStateDict large_state() {
  ShardedStateDict state;
  state.insert("weight", at::ones({1 << 20}));
  return state;
}

TEST_F(FullDisk, AFileOfTorch) {
  save(at::ones({1000}), path("run.pt"));
  for (const bool sync : {true, false}) {
    EXPECT_EQ(without_amount(error_of([&] { save(at::ones({1 << 20}), path("run.pt"), {.sync = sync}); })),
              "[cohort] save: cannot write \"" + path("run.pt") + "\"\n  caused by: cannot take 4.0 MiB for \"" +
                  path("run.pt") + "\": No space left on device (ENOSPC)" + kRoomHint);
  }
  EXPECT_EQ(load(path("run.pt"), {.check = true}).toTensor().numel(), 1000);
  EXPECT_THAT(names_below(), ElementsAre("run.pt"));
  save(at::zeros({1000}), path("run.pt"));
  EXPECT_EQ(load(path("run.pt")).toTensor().sum().item<float>(), 0);
  make_read_only();
  EXPECT_EQ(error_of([&] { save(at::ones({1000}), path("run.pt")); }),
            "[cohort] save: cannot write \"" + path("run.pt") + "\"" + read_only());
  EXPECT_EQ(load(path("run.pt"), {.check = true}).toTensor().sum().item<float>(), 0);
}

TEST_F(FullDisk, AFileOfSafetensors) {
  StateDict tensors, large;
  tensors.insert("weight", at::ones({1000}));
  large.insert("weight", at::ones({1 << 20}));
  save_file(tensors, path("run.safetensors"));
  EXPECT_EQ(without_amount(error_of([&] { save_file(large, path("run.safetensors")); })),
            "[cohort] save_file: cannot write \"" + path("run.safetensors") +
                "\"\n  caused by: cannot take 4.0 MiB for \"" + path("run.safetensors") +
                "\": No space left on device (ENOSPC)" + kRoomHint);
  EXPECT_EQ(load_file(path("run.safetensors"))["weight"].numel(), 1000);
  EXPECT_THAT(names_below(), ElementsAre("run.safetensors"));
  make_read_only();
  EXPECT_EQ(error_of([&] { save_file(tensors, path("run.safetensors")); }),
            "[cohort] save_file: cannot write \"" + path("run.safetensors") + "\"" + read_only());
}

TEST_F(FullDisk, AShardedCheckpoint) {
  auto state = small_state(1);
  save_sharded(state, path("run"));
  const auto before = names_below("run");
  EXPECT_EQ(without_amount(error_of([&] { save_sharded(large_state(), path("run")); })),
            "[cohort] save_sharded: cannot save \"" + path("run") +
                "\"\n  caused by: cannot take 4.0 MiB for \"model_2-00001-of-00001.safetensors\" in \"" + path("run") +
                "\": No space left on device (ENOSPC)" + kRoomHint);
  EXPECT_EQ(names_below("run"), before);
  state["weight"].tensor.zero_();
  load_sharded(state, path("run"));
  EXPECT_EQ(state["weight"].tensor[999].item<float>(), 1);
  make_read_only();
  EXPECT_EQ(error_of([&] { save_sharded(state, path("run")); }),
            "[cohort] save_sharded: cannot save \"" + path("run") + "\"\n  caused by: cannot create \"" +
                path("run/model_2-00001-of-00001.safetensors.unfinished") +
                "\": Read-only file system (EROFS)\n  hint: check that the folder is writable");
  EXPECT_EQ(error_of([&] { save_sharded(state, path("other")); }),
            "[cohort] save_sharded: cannot save \"" + path("other") + "\"\n  caused by: cannot create folder \"" +
                path("other") + "\": Read-only file system (EROFS)");
  EXPECT_EQ(names_below("run"), before);
}

TEST_F(FullDisk, ACheckpointerThatGoesOn) {
  Checkpointer checkpoints(path("run"), {.on_error = OnSaveError::kContinue, .keep_last = 2});
  checkpoints.save(small_state(1), 1);
  checkpoints.wait();
  const auto before = names_below("run");
  testing::internal::CaptureStderr();
  checkpoints.save(large_state(), 2);
  checkpoints.wait();
  const auto warning = testing::internal::GetCapturedStderr();
  expect_full(checkpoints.last_error(), path("run"));
  EXPECT_EQ(warning, "[cohort] warning: " + checkpoints.last_error().substr(9) + "\n");
  EXPECT_EQ(names_below("run"), before);
  auto state = small_state(-1);
  EXPECT_EQ(checkpoints.load_latest(state), 1);
  EXPECT_EQ(state["weight"].tensor[999].item<float>(), 1);

  checkpoints.save(small_state(3), 3);
  checkpoints.wait();
  EXPECT_EQ(checkpoints.last_error(), "");
  EXPECT_EQ(checkpoints.load_latest(state), 3);
  const auto newest = names_below("run");
  make_read_only();
  checkpoints.save(small_state(4), 4);
  checkpoints.wait();
  EXPECT_THAT(checkpoints.last_error(),
              MatchesRegex("\\[cohort\\] Checkpointer: cannot save step 4 in \"" + path("run") +
                           "\"\n  caused by: cannot write \"" + path("run") +
                           "/\\.saving-step-00000004-[0-9a-f]*\\.lock\": Read-only file system \\(EROFS\\)\n"
                           "  hint: the checkpoints that were there are untouched"));
  EXPECT_EQ(names_below("run"), newest);
  EXPECT_EQ(checkpoints.load_latest(state), 3);
}

TEST_F(FullDisk, ACheckpointerThatThrows) {
  Checkpointer checkpoints(path("run"));
  checkpoints.save(small_state(1), 1);
  checkpoints.save(large_state(), 2);
  expect_full(error_of([&] { checkpoints.save(small_state(3), 3); }), path("run"));
  checkpoints.save(small_state(3), 3);
  checkpoints.wait();
  auto state = small_state(-1);
  EXPECT_EQ(checkpoints.load_latest(state), 3);
  EXPECT_EQ(checkpoints.load(state, 1).step, 1);
}

}  // namespace
}  // namespace cohort::checkpoint
