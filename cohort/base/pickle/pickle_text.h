/// Texts inside pickles. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cohort/base/text/utf8.h"

namespace cohort::base {

/// Appends a code point as UTF-8. Returns false for surrogates and numbers above U+10FFFF.
bool append_utf8(std::string& text, unsigned long code_point);
/// Returns the bytes whose values are the code points of `utf8` (Python's str.encode("latin1")); nothing if one is above U+00FF.
std::optional<std::string> to_latin1(std::string_view utf8);
/// Decodes Python's "raw-unicode-escape", the str of protocol 0, to UTF-8; nothing if it is malformed.
std::optional<std::string> from_raw_unicode_escape(std::string_view text);

}  // namespace cohort::base
