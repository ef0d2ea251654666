#include "cohort/job/error_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"
#include "tests/support/temporary_folder.h"

namespace cohort::job {
namespace {

TEST(ErrorFile, HasTorchelasticsFormAndEscapes) {
  EXPECT_EQ(error_file_text("a \"b\"\n\\c\x01", 1700000000),
            "{\"message\": {\"message\": \"a \\\"b\\\"\\n\\\\c\\u0001\", \"extraInfo\": {\"py_callstack\": "
            "\"a \\\"b\\\"\\n\\\\c\\u0001\", \"timestamp\": \"1700000000\"}}}");
}

TEST(ErrorFile, APipeInItsPlaceDoesNotHoldARankUp) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const char* name : {"pipe", "file"}) {
    base::set_env("TORCHELASTIC_ERROR_FILE", folder / name);
    write_error_file("it failed");
  }
  base::unset_env("TORCHELASTIC_ERROR_FILE");
  EXPECT_TRUE(base::read_file(folder / "file")->starts_with("{\"message\": {\"message\": \"it failed\", "));
}

}  // namespace
}  // namespace cohort::job
