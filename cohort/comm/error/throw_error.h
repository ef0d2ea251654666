/// Turns an Error into one of LibTorch's exceptions. All texts have one form: "[cohort] WHAT: " and describe() of the error,
/// or "[cohort] " and describe() if `what` is empty. The exception's source location is the error's.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cohort/base/error/result.h"
#include "cohort/comm/error/exception_text.h"

namespace cohort::comm {

/// Throws an Exception: c10::Error, or a class with the same constructor.
template <typename Exception = c10::Error>
[[noreturn]] void throw_error(const base::Error& error, std::string_view what = {}) {
  std::string text(kErrorMark);
  if (!what.empty()) text.append(what).append(": ");
  const std::source_location& where = error.where();
  throw Exception({where.function_name(), where.file_name(), where.line()}, text + error.describe());
}

/// Returns the value, or throws c10::Error. For operations that may fail.
template <typename T>
T or_throw(base::Result<T> result, std::string_view what = {}) {
  if (!result) throw_error(result.error(), what);
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

/// Returns the value, or throws c10::ValueError. For arguments that may be invalid.
template <typename T>
T or_throw_value(base::Result<T> result, std::string_view what = {}) {
  if (!result) throw_error<c10::ValueError>(result.error(), what);
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace cohort::comm
