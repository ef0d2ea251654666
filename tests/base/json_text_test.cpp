#include "cohort/base/text/json_text.h"

#include <gtest/gtest.h>

namespace cohort::base {
namespace {

TEST(JsonText, StringsAreQuoted) { EXPECT_EQ(json_string("a \"b\" \\ \n\x01"), "\"a \\\"b\\\" \\\\ \\n\\u0001\""); }

TEST(JsonText, BytesThatAreNoUtf8AreReplaced) { EXPECT_EQ(json_string("caf\xe9"), "\"caf\xef\xbf\xbd\""); }

TEST(JsonText, DepthCountsBracketsOutsideOfStrings) {
  EXPECT_EQ(json_depth(""), 0u);
  EXPECT_EQ(json_depth("12"), 0u);
  EXPECT_EQ(json_depth("{}"), 1u);
  EXPECT_EQ(json_depth(R"({"a":[1,{"b":2}],"c":[[]]})"), 3u);
  EXPECT_EQ(json_depth(R"(["[[[[", "\"[[[", "\\"])"), 1u);
  EXPECT_EQ(json_depth("]]]]["), 1u) << "no JSON";
  EXPECT_EQ(json_depth(std::string(100'000, '[')), 100'000u);
}

}  // namespace
}  // namespace cohort::base
