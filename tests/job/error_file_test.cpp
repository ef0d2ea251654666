#include "cohort/job/error_file.h"

#include <gtest/gtest.h>

namespace cohort::job {
namespace {

TEST(ErrorFile, HasTorchelasticsFormAndEscapes) {
  EXPECT_EQ(error_file_text("a \"b\"\n\\c\x01", 1700000000),
            "{\"message\": {\"message\": \"a \\\"b\\\"\\n\\\\c\\u0001\", \"extraInfo\": {\"py_callstack\": "
            "\"a \\\"b\\\"\\n\\\\c\\u0001\", \"timestamp\": \"1700000000\"}}}");
}

}  // namespace
}  // namespace cohort::job
