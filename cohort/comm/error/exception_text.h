/// The texts of exceptions.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "cohort/export.h"

namespace cohort::comm {

/// The beginning of every text that the library has written itself.
inline constexpr std::string_view kErrorMark = "[cohort] ";

/// Returns the text as part of another one, which begins with the mark itself.
COHORT_EXTRAS_API std::string without_mark(const std::string& text);

/// Returns the text of an exception as part of another one: without LibTorch's stack frames and without the mark.
COHORT_EXTRAS_API std::string text_of(const std::exception& error);
/// If it is of another kind than std::exception, or has no text, the result says so. Never empty.
std::string text_of(const std::exception_ptr& error);

}  // namespace cohort::comm
