/// Ends a benchmark with a Result's error.
#pragma once

#include <stdexcept>
#include <type_traits>
#include <utility>

#include "cohort/base/error/result.h"

namespace cohort::bench {

/// Returns the value, or throws std::runtime_error with the full text of the error.
template <typename T>
T value_or_throw(base::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace cohort::bench
