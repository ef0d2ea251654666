/// Pieces of files that others may have written or spoiled, as errors show them.
#pragma once

#include <string>

namespace cohort::files {

/// What stands in a damaged file may be long and not be text; neither belongs on a terminal.
std::string shortened(std::string text);
/// In quotes, shortened where it is long.
std::string quoted_name(const std::string& text);

}  // namespace cohort::files
