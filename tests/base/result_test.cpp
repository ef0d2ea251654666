#include "cohort/base/error/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace cohort::base {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return Error("the number is odd").with_hint("take an even one");
  return number / 2;
}

Result<int> quarter(int number) {
  const Result<int> first = half(number);
  if (!first) return Error("cannot take a quarter").caused_by(first.error());
  return half(*first);
}

TEST(Result, HoldsValueOrError) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().message(), "the number is odd");
}

TEST(Result, CauseChainMessage) {
  EXPECT_EQ(quarter(3).error().describe(),
            "cannot take a quarter\n"
            "  caused by: the number is odd\n"
            "  hint: take an even one");
  EXPECT_EQ(quarter(3).error().cause()->cause(), nullptr);
}

TEST(Result, ErrorKnowsWhereItWasMade) {
  const Error error("here");
  EXPECT_EQ(error.where().line(), __LINE__ - 1);
  EXPECT_TRUE(std::string(error.where().file_name()).ends_with("result_test.cpp"));
}

TEST(Result, MovesValueOut) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 7);
}

TEST(Result, VoidResult) {
  EXPECT_TRUE(Result<void>());
  const Result<void> failed = Error("no");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().describe(), "no");
}

TEST(Result, WrongAccessThrows) {
  EXPECT_THROW((void)half(3).value(), std::bad_variant_access);
  EXPECT_THROW((void)half(2).error(), std::bad_variant_access);
}

}  // namespace
}  // namespace cohort::base
