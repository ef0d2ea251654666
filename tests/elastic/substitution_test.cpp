#include "cohort/elastic/output/substitution.h"

#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

std::string with_rank_3(const std::string& text) { return substitute(text, {{"local_rank", "3"}}); }

TEST(Substitution, ReplacesBothSpellings) {
  EXPECT_EQ(with_rank_3("--out=log.${local_rank}.txt"), "--out=log.3.txt");
  EXPECT_EQ(with_rank_3("$local_rank/$local_rank"), "3/3");
}

TEST(Substitution, LeavesUnknownAndBrokenAlone) {
  for (const char* text : {"${HOME}", "$local_ranks", "${local_rank", "$", "${}", "a$ b", "$1"}) {
    EXPECT_EQ(with_rank_3(text), text);
  }
}

TEST(Substitution, TwoDollarsAreOne) {
  EXPECT_EQ(with_rank_3("$${local_rank}"), "${local_rank}");
  EXPECT_EQ(with_rank_3("kill $$"), "kill $");
}

}  // namespace
}  // namespace cohort::elastic
