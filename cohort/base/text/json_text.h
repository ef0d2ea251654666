/// JSON by hand, for the few lines that a layer writes without a library for it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::base {

/// The text in quotes, with escapes for quotes, backslashes and control characters. Bytes that are not UTF-8 become
/// U+FFFD, as JSON is UTF-8.
std::string json_string(std::string_view text);

/// How many lists and objects lie within each other at most. Requires no valid JSON.
size_t json_depth(std::string_view text);

}  // namespace cohort::base
