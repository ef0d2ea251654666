// What fetching is made of, without a server; with one: tests/e2e/data/fetch_test.py.
#include "cohort/extras/files/sets/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "cohort/base/file/file.h"
#include "cohort/base/process/lock_file.h"
#include "cohort/base/system/host.h"
#include "cohort/extras/files/sets/digest.h"
#include "cohort/extras/files/sets/unpack.h"
#include "cohort/extras/files/synthetic/synthetic_dataset.h"

namespace cohort::files {
namespace {

using namespace std::chrono_literals;

class FetchTest : public testing::Test {
 protected:
  FetchTest() { folder_ = base::make_unique_directory(testing::TempDir() + "cohort_fetch_").value(); }
  ~FetchTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(FetchTest, DigestsAreThoseOfTheStandards) {
  const std::string path = folder_ + "/abc";
  std::ofstream(path) << "abc";
  EXPECT_EQ(file_digest(path, "MD5").value(), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(file_digest(path, "SHA256").value(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(file_digest("/no/such", "MD5").error().describe(),
            "cannot read \"/no/such\": No such file or directory (ENOENT)");
  EXPECT_EQ(file_digest(path, "CRC").error().describe(), "cannot check \"" + path + "\": OpenSSL has no digest CRC");
}

TEST_F(FetchTest, TheCatalogIsWellFormed) {
  std::set<std::string> names, targets, synthetic_names;
  for (const auto& set : synthetic_datasets()) synthetic_names.insert(set.name);
  for (const auto& set : official_sets()) {
    EXPECT_TRUE(names.insert(set.name).second) << set.name;
    EXPECT_TRUE(synthetic_names.count(set.synthetic_dataset)) << set.name;
    for (const auto& file : set.files) {
      EXPECT_TRUE(targets.insert(file.target).second) << file.target;
      EXPECT_EQ(unsafe_name_problem(file.target), "");
      EXPECT_THAT(file.url, testing::MatchesRegex("https?://[a-z0-9.-]+/[A-Za-z0-9~/._-]+"));
      EXPECT_THAT(file.digest.hex, testing::MatchesRegex("[0-9a-f]+"));
      EXPECT_EQ(file.digest.hex.size(), file.digest.algorithm() == "MD5" ? 32U : 64U);
      EXPECT_EQ(file.url.ends_with(".tar.gz"), file.form == SetFile::Form::kTarGzip);
    }
  }
}

TEST_F(FetchTest, UnknownNamesMessage) {
  EXPECT_EQ(fetch("mnits", folder_).error().describe(),
            "there is no dataset \"mnits\" in the catalog (did you mean \"mnist\"?); it has cifar10, cifar10-binary, "
            "cifar100, cifar100-binary, mnist, fashion-mnist, kmnist, tiny-shakespeare");
}

TEST_F(FetchTest, WhatIsThereIsNotFetched) {
  std::filesystem::create_directories(folder_ + "/cifar-10-batches-py");
  const auto fetched = fetch("cifar10", folder_, {.mirror = "http://127.0.0.1:1"});
  ASSERT_TRUE(fetched.ok()) << fetched.error().describe();
  EXPECT_EQ(*fetched, 0);
}

TEST_F(FetchTest, WithoutANetworkItSaysWhatToDo) {
  EXPECT_EQ(fetch("cifar10-binary", folder_, {.mirror = "http://127.0.0.1:1"}).error().describe(),
            "cannot fetch cifar10-binary into \"" + folder_ +
                "\"\n"
                "  caused by: cannot download http://127.0.0.1:1/~kriz/cifar-10-binary.tar.gz: Couldn't connect to "
                "server\n"
                "  hint: without a network here, run this elsewhere and copy the folder: cohort-data fetch "
                "cifar10-binary --root DIR\n"
                "  hint: for a small synthetic dataset in the same format, run: cohort-data make cifar10 --root " +
                folder_);
}

TEST_F(FetchTest, OnlyOneHasTheLock) {
  const std::string path = folder_ + "/.lock";
  {
    const auto first = base::LockFile::take(path, 0ms);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(base::LockFile::take(path, 100ms).error().describe(),
              "another process (pid " + std::to_string(::getpid()) + " on " + base::host_name() + ") has had \"" +
                  path + "\" locked for 100 ms");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream{path};  // as a killed process leaves it
  EXPECT_TRUE(base::LockFile::take(path, 0ms).ok());
}

}  // namespace
}  // namespace cohort::files
