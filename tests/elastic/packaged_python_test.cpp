#include "cohort/elastic/plan/packaged_python.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace cohort::elastic {
namespace {

namespace fs = std::filesystem;

class PackagedPython : public testing::Test {
 protected:
  void add_record(const std::string& version, const std::string& packages = "site-packages") {
    fs::create_directories(prefix_ / ("lib/" + version + "/" + packages + "/torchcohort-0.1.0.dist-info"));
  }
  void add_program(const std::string& name) {
    fs::create_directories(prefix_ / "bin");
    fs::copy_file("/bin/sh", prefix_ / ("bin/" + name));
  }
  std::optional<std::string> found() { return packaged_python(prefix_ / "bin/cohort"); }

  const test::TemporaryFolder prefix_;
};

TEST_F(PackagedPython, IsTheOneBesideTheLauncher) {
  add_record("python3.99");
  add_program("python3.99");
  EXPECT_EQ(found(), prefix_ / "bin/python3.99");
}

TEST_F(PackagedPython, IsOfTheVersionThatHasThePackage) {
  fs::create_directories(prefix_ / "lib/python3.99/site-packages/torch-2.13.0.dist-info");
  add_record("python3.98", "dist-packages");
  for (const char* name : {"python3", "python3.98", "python3.99"}) add_program(name);
  EXPECT_EQ(found(), prefix_ / "bin/python3.98");
}

TEST_F(PackagedPython, IsSoughtInPathIfNotBesideTheLauncher) {
  add_record("python3.99");
  EXPECT_EQ(found(), std::nullopt);  // no such Python anywhere
}

TEST_F(PackagedPython, IsNoneForALauncherThatPipDidNotInstall) {
  add_program("python3.99");
  EXPECT_EQ(found(), std::nullopt);
  add_record("python3.99");
  EXPECT_EQ(packaged_python(prefix_ / "build/cohort"), std::nullopt);
  EXPECT_EQ(packaged_python(""), std::nullopt);
}

TEST_F(PackagedPython, HasProgramsInItsPackage) {
  const std::string launcher = prefix_ / "bin/cohort";
  EXPECT_EQ(packaged_program(launcher, "train"), std::nullopt);
  add_record("python3.99");
  EXPECT_EQ(packaged_program(launcher, "train"), std::nullopt);
  const fs::path programs = prefix_ / "lib/python3.99/site-packages/torchcohort/bin";
  fs::create_directories(programs);
  fs::copy_file("/bin/sh", programs / "train");
  EXPECT_EQ(packaged_program(launcher, "train"), programs / "train");
  EXPECT_EQ(packaged_program(launcher, "other"), std::nullopt);
  EXPECT_EQ(packaged_program(prefix_ / "build/cohort", "train"), std::nullopt);
}

}  // namespace
}  // namespace cohort::elastic
