/// Writes JSON by hand, for the few lines that a layer needs without a JSON library.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::base {

/// Returns the text in quotes, with escapes for quotes, backslashes and control characters. Bytes that are not UTF-8 become
/// U+FFFD, because JSON is UTF-8.
std::string json_string(std::string_view text);

/// Returns how deeply lists and objects are nested. The text may be invalid JSON.
size_t json_depth(std::string_view text);

}  // namespace cohort::base
