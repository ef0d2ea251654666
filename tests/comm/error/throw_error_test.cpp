#include "cohort/comm/error/throw_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace cohort::comm {
namespace {

using base::Error;
using base::Result;
using testing::HasSubstr;

Error no_rooms() {
  return Error("cannot open \"/x\"").caused_by(Error("No such file (ENOENT)").with_hint("create it first"));
}

constexpr const char* kText = "cannot open \"/x\"\n  caused by: No such file (ENOENT)\n  hint: create it first";

template <class Exception, class Call>
std::string text_of_thrown(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    EXPECT_EQ(typeid(error), typeid(Exception));
    return error.what_without_backtrace();
  }
  return "none";
}

TEST(ThrowError, GivesTheValue) {
  auto value = or_throw(Result<std::unique_ptr<int>>(std::make_unique<int>(7)), "f");
  EXPECT_EQ(*or_throw_value(Result<std::unique_ptr<int>>(std::move(value))), 7);
  or_throw(Result<void>());
  or_throw_value(Result<void>(), "f");
}

TEST(ThrowError, HasOneTextForm) {
  EXPECT_EQ(text_of_thrown<c10::Error>([] { or_throw(Result<int>(no_rooms())); }), std::string("[cohort] ") + kText);
  EXPECT_EQ(text_of_thrown<c10::Error>([] { or_throw(Result<void>(no_rooms()), "load"); }),
            std::string("[cohort] load: ") + kText);
  EXPECT_EQ(text_of_thrown<c10::ValueError>([] { or_throw_value(Result<int>(no_rooms()), "load"); }),
            std::string("[cohort] load: ") + kText);
  EXPECT_EQ(text_of_thrown<c10::ValueError>([] { or_throw_value(Result<void>(no_rooms())); }),
            std::string("[cohort] ") + kText);
  EXPECT_EQ(text_of_thrown<c10::DistNetworkError>([] { throw_error<c10::DistNetworkError>(no_rooms(), "join"); }),
            std::string("[cohort] join: ") + kText);
}

TEST(ThrowError, NamesThePlaceOfTheError) {
  const Error error = no_rooms();
  try {
    throw_error(error);
  } catch (const c10::Error& thrown) {
    EXPECT_THAT(thrown.what(), HasSubstr("throw_error_test.cpp:" + std::to_string(error.where().line())));
  }
}

TEST(ExceptionText, BecomesPartOfAnotherText) {
  try {
    or_throw(Result<int>(no_rooms()));
  } catch (const std::exception& error) {
    EXPECT_EQ(text_of(error), kText);
  }
  EXPECT_EQ(text_of(std::runtime_error("[cohort] a [cohort] b")), "a [cohort] b");
  EXPECT_EQ(text_of(std::runtime_error("cohort")), "cohort");
  EXPECT_EQ(without_mark("[cohort]"), "[cohort]");
}

}  // namespace
}  // namespace cohort::comm
