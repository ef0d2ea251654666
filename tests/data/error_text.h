/// Runs `fn`, which must throw Error, and returns the message without LibTorch's backtrace.
#pragma once

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

namespace cohort::test {

template <typename Error, typename Fn>
std::string error_text(Fn fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error came: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error came";
  return "";
}

}  // namespace cohort::test
