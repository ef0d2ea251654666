/// From a Result to the exception that a step of a save or a load throws.
#pragma once

#include <c10/util/Exception.h>

#include <utility>

#include "cohort/base/result.h"

namespace cohort::checkpoint::detail {

/// The value, or throws the error.
inline void throw_if_failed(const base::Result<void>& result) { TORCH_CHECK(result.ok(), result.error().describe()); }
template <typename T>
T value_or_throw(base::Result<T> result) {
  if (!result) throw_if_failed(result.error());
  return std::move(*result);
}

}  // namespace cohort::checkpoint::detail
