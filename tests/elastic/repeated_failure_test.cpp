#include "cohort/elastic/report/repeated_failure.h"

#include <gtest/gtest.h>

#include <csignal>

namespace cohort::elastic {
namespace {

using std::chrono::seconds;

WorkerFailure failure(const std::string& error, const base::ExitStatus& status = {.signal = SIGABRT}) {
  WorkerFailure failure;
  failure.status = status;
  failure.error = error;
  return failure;
}

TEST(RepeatedFailure, IsAnErrorOfTheProgramThatComesTwiceAndSoon) {
  RepeatedFailure repeated;
  EXPECT_FALSE(repeated.is_it(failure("c10::ValueError: no such option"), seconds(3)));
  EXPECT_TRUE(repeated.is_it(failure("c10::ValueError: no such option"), seconds(5)));
  EXPECT_FALSE(repeated.is_it(failure("c10::ValueError: another one"), seconds(5)));
  EXPECT_FALSE(repeated.is_it(failure("c10::ValueError: another one"), seconds(31))) << "it has worked for a while";
  EXPECT_FALSE(repeated.is_it(failure("c10::ValueError: another one"), seconds(1))) << "the last one came late";
  EXPECT_TRUE(repeated.is_it(failure("c10::ValueError: another one"), seconds(1)));
}

TEST(RepeatedFailure, WhatTryingAgainMayChangeIsRestartedAgain) {
  for (const char* error : {"c10::DistNetworkError: cannot reach the store", "RuntimeError: CUDA error",
                            "OSError: busy", "the disk is full", "c10::Error: ValueError: inside"}) {
    RepeatedFailure repeated;
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(repeated.is_it(failure(error), seconds(1))) << error;
  }
  RepeatedFailure killed;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(killed.is_it(failure("", {.signal = SIGKILL}), seconds(1)));
}

TEST(RepeatedFailure, KnowsItsKinds) {
  for (const char* error :
       {"ValueError: x", "TypeError: x", "c10::TypeError: x", "ModuleNotFoundError: No module named 'x'",
        "std::invalid_argument: stoi", "c10::NotImplementedError: x"}) {
    EXPECT_TRUE(is_of_the_program(failure(error))) << error;
  }
  EXPECT_TRUE(is_of_the_program(failure("", {.code = 2}))) << "wrong arguments";
  EXPECT_FALSE(is_of_the_program(failure("", {.code = 1})));
  EXPECT_FALSE(is_of_the_program(failure("RuntimeError: x", {.code = 2}))) << "it has said what it was";
}

}  // namespace
}  // namespace cohort::elastic
