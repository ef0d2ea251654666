/// UTF-8. Strict, as Python's decoder: no overlong forms, no surrogates, nothing above U+10FFFF. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::base {

/// Length of the sequence that `text`, which is not empty, begins with, and its code point; 0 if it is malformed.
size_t decode_utf8(std::string_view text, unsigned long& code_point);
/// How many bytes stand before the first one that belongs to no sequence; all of them, if there is none.
size_t utf8_prefix(std::string_view text);
bool is_utf8(std::string_view text);
/// The text, with U+FFFD in the place of each byte that belongs to no sequence.
std::string valid_utf8(std::string_view text);

}  // namespace cohort::base
