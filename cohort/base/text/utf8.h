/// UTF-8. Strict, as Python's decoder: no overlong forms, no surrogates, nothing above U+10FFFF. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::base {

/// Decodes the first sequence of `text`, which must not be empty. Returns its length and sets its code point; 0 if it is
/// malformed.
size_t decode_utf8(std::string_view text, unsigned long& code_point);
/// Returns the number of bytes before the first malformed sequence; all bytes if there is none.
size_t utf8_prefix(std::string_view text);
bool is_utf8(std::string_view text);
/// Returns the text with U+FFFD in place of each byte of a malformed sequence.
std::string valid_utf8(std::string_view text);

}  // namespace cohort::base
