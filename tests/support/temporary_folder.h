/// A folder of one test, removed with all that is in it.
#pragma once

#include <filesystem>
#include <string>

#include "cohort/base/file/file.h"

namespace cohort::test {

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(base::make_unique_directory((std::filesystem::temp_directory_path() / "cohort_test_").string()).value()) {
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  /// The path of a name inside.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace cohort::test
