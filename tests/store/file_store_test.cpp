// FileStore: its file after crashes, files that are none of its own, and who removes it.
#include "cohort/store/file/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "tests/store/times.h"
#include "tests/support/temporary_folder.h"

namespace cohort::store {
namespace {

using testing::ElementsAre;

class FileStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<FileStore> open(int num_workers = -1) {
    return FileStore::open({.path = path_, .num_workers = num_workers, .timeout = kHangLimit}).value();
  }
  std::string error_of_open() { return FileStore::open({.path = path_}).error().describe(); }
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::app | std::ios::binary) << bytes; }
  std::string content() { return base::read_file(path_).value(); }

  test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "store";
};

// Captured from PyTorch 2.13.
TEST_F(FileStoreTest, TheFormatIsPyTorchs) {
  const auto store = open();
  ASSERT_TRUE(store->set("k", "v").ok());
  EXPECT_EQ(*store->add("n", 3), 3);
  EXPECT_TRUE(*store->delete_key("k"));
  EXPECT_EQ(content(), std::string("\x09\0\0\0refcount/\x01\0\0\0"
                                   "1\x02\0\0\0/k\x01\0\0\0v\x02\0\0\0/n\x01\0\0\0"
                                   "3\x03\0\0\0-/k\0\0\0\0",
                                   18 + 11 + 11 + 11));
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(FileStoreTest, EntriesAreTakenOnlyWhole) {
  const auto bytes = encode_entry({"/k", "value"}) + encode_entry({"", ""});
  for (size_t size = 0; size <= bytes.size(); ++size) {
    std::vector<std::string> keys;
    const auto taken = take_entries(bytes.substr(0, size), [&](const LogEntry& entry) { keys.push_back(entry.key); });
    EXPECT_EQ(taken, size == bytes.size() ? size : size >= 15 ? 15 : 0);
    EXPECT_EQ(keys.size(), taken == 0 ? 0 : size == bytes.size() ? 2 : 1);
  }
}

// A writer that died in the middle: at every byte of an entry.
TEST_F(FileStoreTest, ACrashInMidWriteCostsThatChangeAlone) {
  const auto lost = encode_entry({"/k", "longer than all that comes after it: a value that was never whole"});
  for (size_t size = 1; size < lost.size(); ++size) {
    unlink(path_.c_str());
    const auto store = open();
    ASSERT_TRUE(store->set("k", "before").ok());
    write(lost.substr(0, size));
    EXPECT_EQ(*store->get("k"), "before");
    const auto reader = open();  // writes: it counts itself
    EXPECT_EQ(*reader->get("k"), "before");
    ASSERT_TRUE(reader->set("l", "after").ok());
    EXPECT_THAT(*store->multi_get({"k", "l"}), ElementsAre("before", "after"));
    EXPECT_EQ(content().find("never"), std::string::npos);
  }
}

TEST_F(FileStoreTest, OtherPeoplesFilesAreLeftAloneMessage) {
  write("root:x:0:0:root:/root:/bin/bash\n");
  EXPECT_EQ(error_of_open(), "cannot open the file store\n  caused by: \"" + path_ +
                                 "\" is not the file of a store\n  hint: choose another path");
  EXPECT_EQ(content(), "root:x:0:0:root:/root:/bin/bash\n");
  unlink(path_.c_str());
  write(encode_entry({"x", "y"}));
  EXPECT_EQ(error_of_open(), "cannot open the file store\n  caused by: \"" + path_ +
                                 "\" is not the file of a store\n  hint: choose another path");
  chmod(path_.c_str(), 0666);
  EXPECT_EQ(error_of_open(), "cannot open the file store\n  caused by: \"" + path_ +
                                 "\" can be written by other users\n  hint: run chmod go-w on it, or delete it");
  EXPECT_EQ(FileStore::open({.path = folder_ / "none/store"}).error().describe(),
            "cannot open the file store\n  caused by: cannot open \"" + folder_ / "none/store" +
                "\": No such file or directory (ENOENT)\n  hint: create the folder, and let all processes "
                "write to it");
  EXPECT_EQ(FileStore::open({.path = "/dev/null"}).error().describe(),
            "cannot open the file store\n  caused by: \"/dev/null\" is not a regular file");
}

TEST_F(FileStoreTest, AFileThatIsLockedForTooLongMessage) {
  const auto store = open();
  ASSERT_TRUE(store->set("k", "1").ok());
  const base::Fd holder(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(holder.get(), LOCK_EX), 0);
  store->set_timeout(kAWhile);
  EXPECT_EQ(store->check({"k"}).error().describe(),
            "\"" + path_ +
                "\" was locked by another process for 100 ms\n  hint: see whether a process that "
                "shares it is stopped");
  ASSERT_EQ(flock(holder.get(), LOCK_UN), 0);
  EXPECT_TRUE(*store->check({"k"}));
}

TEST_F(FileStoreTest, AFullDiskIsToldAndPassesMessage) {
  const auto store = open();
  ASSERT_TRUE(store->set("k", "before").ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{content().size() + 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto failed = store->set("k", "a longer value than there is room for");
  EXPECT_EQ(*store->get("k"), "before");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(failed.error().describe(), "cannot write to \"" + path_ + "\": File too large (EFBIG)");
  ASSERT_TRUE(store->set("l", "after").ok());
  EXPECT_THAT(*open()->multi_get({"k", "l"}), ElementsAre("before", "after"));
}

TEST_F(FileStoreTest, TheLastOfAllWorkersRemovesTheFile) {
  auto first = open(2);
  auto second = open(2);
  first.reset();
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
  second.reset();
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
  open();
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
}

TEST_F(FileStoreTest, AFileThatIsRemovedInUseIsToldMessage) {
  const auto store = open();
  ASSERT_TRUE(store->set("k", "1").ok());
  unlink(path_.c_str());
  EXPECT_EQ(store->get("k").error().describe(), "\"" + path_ + "\" was removed or truncated while it was in use");
}

// Each opens, counts and ends while others do, so that the file comes and goes.
TEST_F(FileStoreTest, OpeningWhileAnotherRemoves) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int k = 0; k < 50; ++k) {
        const auto store = FileStore::open({.path = path_, .num_workers = 0, .timeout = kHangLimit});
        ASSERT_TRUE(store.ok()) << store.error().describe();
        ASSERT_TRUE((*store)->add("n", 1).ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace cohort::store
