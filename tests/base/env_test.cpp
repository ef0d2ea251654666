#include "cohort/base/system/env.h"

#include <gtest/gtest.h>

namespace cohort::base {
namespace {

constexpr const char* kName = "COHORT_TEST_VARIABLE";

class Env : public testing::Test {
 protected:
  ~Env() override { unset_env(kName); }
};

TEST_F(Env, UnsetIsNothingAndEmptyIsEmpty) {
  unset_env(kName);
  EXPECT_EQ(get_env(kName), std::nullopt);
  set_env(kName, "");
  EXPECT_EQ(get_env(kName), "");
}

TEST_F(Env, SnapshotHoldsValuesWithEqualsSigns) {
  set_env(kName, "a=b=c");
  EXPECT_EQ(environment().at(kName), "a=b=c");
}

TEST_F(Env, IntIsParsedAndTrimmed) {
  set_env(kName, " 42 ");
  EXPECT_EQ(*env_int(kName), 42);
  EXPECT_EQ(*required_env_int(kName, 0, 42), 42);
  unset_env(kName);
  EXPECT_EQ(*env_int(kName), std::nullopt);
}

TEST_F(Env, IntErrorsQuoteNameAndValueMessage) {
  set_env(kName, "two");
  EXPECT_EQ(env_int(kName).error().describe(), "environment variable COHORT_TEST_VARIABLE=\"two\" is not an integer");
  set_env(kName, "7");
  EXPECT_EQ(env_int(kName, 0, 3).error().describe(),
            "environment variable COHORT_TEST_VARIABLE=\"7\" must be from 0 to 3");
  set_env(kName, "0");
  EXPECT_EQ(env_int(kName, 1).error().describe(), "environment variable COHORT_TEST_VARIABLE=\"0\" must be at least 1");
  unset_env(kName);
  EXPECT_EQ(required_env_int(kName).error().describe(), "environment variable COHORT_TEST_VARIABLE is not set");
}

TEST_F(Env, BoolMessage) {
  set_env(kName, "on");
  EXPECT_EQ(*env_bool(kName), true);
  set_env(kName, "perhaps");
  EXPECT_EQ(env_bool(kName).error().describe(), "environment variable COHORT_TEST_VARIABLE=\"perhaps\" must be 1 or 0");
}

}  // namespace
}  // namespace cohort::base
