/// The texts of exceptions.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "cohort/export.h"

namespace cohort::comm {

/// The beginning of all texts that the library itself writes.
inline constexpr std::string_view kErrorMark = "[cohort] ";

/// Returns the text without the mark, for use in another text that begins with the mark.
COHORT_EXTRAS_API std::string without_mark(const std::string& text);

/// Returns the text of an exception without LibTorch's stack frames and without the mark, for use in another text.
COHORT_EXTRAS_API std::string text_of(const std::exception& error);
/// As above. Says so if the exception is not a std::exception or has no text. Never empty.
std::string text_of(const std::exception_ptr& error);

}  // namespace cohort::comm
