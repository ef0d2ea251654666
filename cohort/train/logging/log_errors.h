/// Where an error of the layer report becomes one of LibTorch's exceptions, or a warning in a destructor.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "cohort/base/log.h"
#include "cohort/base/result.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::train::detail {

/// Throws c10::Error "[cohort] WHAT: " with the whole text of the error.
template <typename T>
T or_fail(const std::string& what, base::Result<T> result) {
  TORCH_CHECK(result.ok(), "[cohort] ", what, ": ", result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

/// The same as c10::ValueError: the caller asked for what cannot be.
template <typename T>
T or_refuse(const std::string& what, base::Result<T> result) {
  TORCH_CHECK_VALUE(result.ok(), "[cohort] ", what, ": ", result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

/// For destructors, which cannot throw: what went wrong is a warning.
template <typename Close>
void close_quietly(const Close& close) {
  try {
    close();
  } catch (const std::exception& error) {
    base::log_warning(comm::text_of(error));
  }
}

}  // namespace cohort::train::detail
