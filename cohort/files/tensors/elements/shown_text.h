/// Prepares texts from files that others may have written or damaged for errors.
#pragma once

#include <string>

namespace cohort::files {

/// Cuts text after 200 bytes and replaces characters that cannot be printed with "?", because a damaged file may have any bytes.
std::string shortened(std::string text);
/// Puts text in quotes; shortens it if it is longer than 200 bytes.
std::string quoted_name(const std::string& text);

}  // namespace cohort::files
