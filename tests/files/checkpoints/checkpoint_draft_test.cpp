#include "cohort/files/checkpoints/checkpoint_draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "cohort/base/file/file.h"
#include "cohort/files/checkpoints/checkpoint_list.h"
#include "cohort/files/checkpoints/checkpoint_name.h"

namespace cohort::files {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class CheckpointDraftTest : public testing::Test {
 protected:
  CheckpointDraftTest() { root_ = base::make_unique_directory(testing::TempDir() + "cohort_draft_").value(); }
  ~CheckpointDraftTest() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(name) << text; }
  std::string read(const std::string& name) const { return base::read_file(root_ + "/" + name).value(); }

  std::string save(int64_t step, const std::string& text) const {
    auto draft = CheckpointDraft::begin(root_, step).value();
    write(draft.folder() + "/weights", text);
    fs::create_directory(draft.folder() + "/more");
    write(draft.folder() + "/more/rank-1", "one");
    return draft.publish({.saved_at = 5, .num_ranks = 2}).value();
  }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) names.insert(entry.path().filename().string());
    return names;
  }
  std::string problem(int64_t step, CheckpointCheck check = CheckpointCheck::kChecksums) const {
    return check_checkpoint(root_ + "/" + checkpoint_name(step), check).error().describe();
  }

  std::string root_;
};

TEST_F(CheckpointDraftTest, AppearsWhole) {
  EXPECT_EQ(save(7, "seven"), root_ + "/step-00000007");
  EXPECT_THAT(names(), ElementsAre("step-00000007"));
  const auto manifest = check_checkpoint(root_ + "/step-00000007", CheckpointCheck::kChecksums).value();
  EXPECT_EQ(manifest.step, 7);
  EXPECT_EQ(manifest.num_ranks, 2);
  ASSERT_EQ(manifest.files.size(), 2u);
  EXPECT_EQ(manifest.files[0].name, "more/rank-1");
  EXPECT_EQ(manifest.files[1].size, 5u);
  EXPECT_EQ(fs::status(root_ + "/step-00000007").permissions(), fs::perms::owner_all);
}

TEST_F(CheckpointDraftTest, ReplacesOneOfTheSameStep) {
  save(7, "old");
  save(7, "new");
  EXPECT_THAT(names(), ElementsAre("step-00000007"));
  EXPECT_EQ(read("step-00000007/weights"), "new");
}

TEST_F(CheckpointDraftTest, LeavesNothingUnlessPublished) {
  save(7, "seven");
  {
    const auto draft = CheckpointDraft::begin(root_, 8).value();
    write(draft.folder() + "/weights", "half");
    EXPECT_EQ(names().size(), 3u);  // the draft and its lock
  }
  EXPECT_THAT(names(), ElementsAre("step-00000007"));
}

TEST_F(CheckpointDraftTest, TakesWhatOtherProcessesHaveSealed) {
  auto draft = CheckpointDraft::begin(root_, 1).value();
  write(draft.folder() + "/a", "abc");
  const auto sealed = seal_file(draft.folder(), "a").value();
  EXPECT_EQ(sealed, (ManifestFile{.name = "a", .size = 3, .crc32 = 0x352441c2}));
  auto shorter = sealed;
  shorter.size = 2;
  EXPECT_EQ(draft.publish({.files = {shorter}}).error().describe(), "\"a\" has 3 bytes, but the manifest says 2");
  EXPECT_EQ(seal_file(draft.folder(), "b").error().describe(),
            "cannot open \"" + draft.folder() + "/b\": No such file or directory (ENOENT)");
}

TEST_F(CheckpointDraftTest, DamageIsFound) {
  save(7, "seven");
  const std::string folder = root_ + "/step-00000007";
  write(folder + "/weights", "sevem");
  EXPECT_TRUE(check_checkpoint(folder, CheckpointCheck::kSizes).ok());
  EXPECT_EQ(problem(7), "\"weights\" is damaged: its checksum is 0f5dfcd6, but the manifest says 9654ad6c");
  write(folder + "/weights", "seve");
  EXPECT_EQ(problem(7, CheckpointCheck::kSizes), "\"weights\" has 4 bytes, but the manifest says 5");
  fs::remove(folder + "/weights");
  EXPECT_EQ(problem(7), "\"weights\" is missing: No such file or directory (ENOENT)");
  fs::create_symlink("/etc/hostname", folder + "/weights");
  EXPECT_EQ(problem(7), "\"weights\" is not a plain file");
  fs::remove(folder + "/manifest.json");
  EXPECT_EQ(problem(7), "it is unfinished: it has no manifest.json");
  save(8, "eight");
  fs::rename(root_ + "/step-00000008", root_ + "/step-00000009");
  EXPECT_EQ(problem(9), "its manifest is one of step 8");
}

TEST_F(CheckpointDraftTest, ListHasTheNewestFirstAndSaysWhatIsWrong) {
  EXPECT_THAT(list_checkpoints(root_ + "/none", CheckpointCheck::kSizes).value().checkpoints, IsEmpty());
  save(7, "seven");
  save(10, "ten");
  save(100000000, "many");
  fs::remove(root_ + "/step-00000010/manifest.json");
  fs::create_directory(root_ + "/unrelated");
  const auto draft = CheckpointDraft::begin(root_, 11).value();
  const auto list = list_checkpoints(root_, CheckpointCheck::kChecksums).value();
  ASSERT_EQ(list.checkpoints.size(), 3u);
  EXPECT_EQ(list.checkpoints[0].step, 100000000);
  EXPECT_EQ(list.checkpoints[1].step, 10);
  EXPECT_EQ(list.checkpoints[1].problem, "it is unfinished: it has no manifest.json");
  EXPECT_FALSE(list.checkpoints[1].manifest);
  EXPECT_EQ(list.checkpoints[2].manifest->step, 7);
  EXPECT_EQ(list.temporary.size(), 2u);
  const std::string file = root_ + "/step-00000007/manifest.json";
  EXPECT_EQ(list_checkpoints(file, CheckpointCheck::kSizes).error().message(),
            "cannot list the folder \"" + file + "\": Not a directory (ENOTDIR)");
}

TEST_F(CheckpointDraftTest, LeftoversOfTheDeadAreRemovedAndThoseOfTheLivingStay) {
  save(7, "seven");
  const auto alive = CheckpointDraft::begin(root_, 8).value();
  const std::string dead = root_ + "/.saving-step-00000006-0123";
  const std::string unlocked = root_ + "/.saving-step-00000005-4567";
  for (const auto& folder : {dead, unlocked, root_ + "/.removing-step-00000001-89"}) {
    fs::create_directories(folder + "/more");
    write(folder + "/more/rank-1", "half");
  }
  write(dead + ".lock", "");
  write(root_ + "/.saving-step-00000004-ab.lock", "");
  EXPECT_THAT(remove_leftovers(root_), ElementsAre(".removing-step-00000001-89", ".saving-step-00000004-ab",
                                                   ".saving-step-00000005-4567", ".saving-step-00000006-0123"));
  const auto name = fs::path(alive.folder()).filename().string();
  EXPECT_THAT(names(), ElementsAre(name, name + ".lock", "step-00000007"));
}

TEST_F(CheckpointDraftTest, RemovesOne) {
  save(7, "seven");
  save(8, "eight");
  EXPECT_TRUE(remove_checkpoint(root_, 7).ok());
  EXPECT_THAT(names(), ElementsAre("step-00000008"));
  EXPECT_EQ(remove_checkpoint(root_, 7).error().describe(),
            "cannot remove \"" + root_ + "/step-00000007\": No such file or directory (ENOENT)");
}

TEST_F(CheckpointDraftTest, AFolderThatVanishesIsAnError) {
  auto draft = CheckpointDraft::begin(root_, 7).value();
  write(draft.folder() + "/weights", "seven");
  fs::remove_all(draft.folder());
  EXPECT_EQ(draft.publish({}).error().describe(),
            "cannot list the folder \"" + draft.folder() + "\": No such file or directory (ENOENT)");
  write(root_ + "/file", "");
  EXPECT_EQ(CheckpointDraft::begin(root_ + "/file", 7).error().describe(),
            "cannot create folder \"" + root_ + "/file\": Not a directory (ENOTDIR)");
}

}  // namespace
}  // namespace cohort::files
