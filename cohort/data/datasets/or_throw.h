/// Where an error of the layer files becomes one of LibTorch's exceptions.
#pragma once

#include <c10/util/Exception.h>

#include <type_traits>
#include <utility>

#include "cohort/base/result.h"

namespace cohort::data::detail {

/// Throws c10::Error with the whole text of the error.
template <typename T>
T or_throw(base::Result<T> result) {
  TORCH_CHECK(result.ok(), "[cohort] ", result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace cohort::data::detail
