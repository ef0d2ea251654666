// One file of tensors, of either format, saved over an older one and broken at each of its system calls.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/file/torch_file.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/fault_points.h"

namespace cohort::checkpoint {
namespace {

using test::TemporaryFolder;

struct FileKind {
  const char* name;
  void (*save)(const StateDict& tensors, const std::string& path);
  StateDict (*load)(const std::string& path);
};

class FileFaults : public testing::TestWithParam<FileKind> {
 protected:
  static void save(const std::string& path, double value) {
    StateDict tensors;
    tensors.insert("weight", at::full({3}, value));
    tensors.insert("other", at::full({30, 1000}, value));  // too small for threads, which a fork loses
    GetParam().save(tensors, path);
  }
};

TEST_P(FileFaults, TheOldFileOrTheNewOneIsThereAndNothingElse) {
  if (!test::can_inject_faults()) GTEST_SKIP() << "no ptrace here";
  for (const int error_number : {0, ENOSPC, EIO}) {
    for (int call = 1;; ++call) {
      const TemporaryFolder folder(test::folder_for_faults());
      const TemporaryFolder messages(test::folder_for_faults());
      save(folder.file("file"), 1);
      const auto body = [&] {
        try {
          save(folder.file("file"), 2);
        } catch (const c10::Error& error) {
          messages.write("error", error.what_without_backtrace());
          return 1;
        }
        return 0;
      };
      const auto outcome = test::run_with_fault(body, {.call = call, .error_number = error_number});
      SCOPED_TRACE("call " + std::to_string(call) + ", " + outcome.call + ", error " + std::to_string(error_number));
      ASSERT_THAT(outcome.exit_code, testing::AnyOf(0, error_number == 0 ? -1 : 1));
      const auto tensors = GetParam().load(folder.file("file"));
      const double value = tensors["weight"][0].item<double>();
      EXPECT_TRUE(value == 2 || (value == 1 && outcome.exit_code != 0)) << value;
      EXPECT_TRUE(tensors["other"].eq(value).all().item<bool>());
      EXPECT_TRUE(error_number == 0 || folder.num_files() == 1u);
      if (outcome.exit_code == 1) {
        EXPECT_THAT(messages.read("error"), testing::HasSubstr("\"" + folder.file("file") + "\""));
        EXPECT_THAT(messages.read("error"), testing::HasSubstr(error_number == EIO ? "(EIO)" : "(ENOSPC)"));
      }
      ASSERT_LT(call, 500);
      if (!outcome.was_reached) break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, FileFaults,
    testing::Values(FileKind{"safetensors",
                             [](const StateDict& tensors, const std::string& path) { save_file(tensors, path); },
                             [](const std::string& path) { return load_file(path); }},
                    FileKind{"pt", [](const StateDict& tensors, const std::string& path) { save(tensors, path); },
                             [](const std::string& path) { return load_tensors(path, {.check = true}); }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cohort::checkpoint
