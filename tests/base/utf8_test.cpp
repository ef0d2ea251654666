#include "cohort/base/text/utf8.h"

#include <gtest/gtest.h>

namespace cohort::base {
namespace {

TEST(Utf8, BytesOfNoLetterAreReplaced) {
  EXPECT_EQ(valid_utf8("Gr\xc3\xb6\xc3\x9f"
                       "e \xe2\x82\xac \xf0\x9f\x98\x80"),
            "Gr\xc3\xb6\xc3\x9f"
            "e \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(valid_utf8("caf\xe9!"), "caf\xef\xbf\xbd!");
  EXPECT_EQ(valid_utf8("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");                  // cut off
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
  EXPECT_EQ(valid_utf8(""), "");
}

TEST(Utf8, EndsAtTheFirstByteOfNoLetter) {
  EXPECT_EQ(utf8_prefix("Gr\xc3\xb6n"), 5U);
  EXPECT_EQ(utf8_prefix("caf\xe9!"), 3U);
  EXPECT_EQ(utf8_prefix("\xe2\x82"), 0U);
  EXPECT_EQ(utf8_prefix(""), 0U);
}

}  // namespace
}  // namespace cohort::base
