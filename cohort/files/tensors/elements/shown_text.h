/// Pieces of files that others may have written or spoiled, as errors show them.
#pragma once

#include <string>

namespace cohort::files {

/// Cuts text after 200 bytes and replaces what cannot be printed by "?": a damaged file may hold anything.
std::string shortened(std::string text);
/// Puts text in quotes; shortens it if it is longer than 200 bytes.
std::string quoted_name(const std::string& text);

}  // namespace cohort::files
