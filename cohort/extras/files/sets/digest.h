/// Digests of files, to compare a download with the published file.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

namespace cohort::files {

/// A published digest in lower-case hexadecimal digits. MD5 (32 digits) finds damage, but not attacks; SHA-256 has 64.
struct Digest {
  std::string hex;
  /// "MD5" or "SHA256", depending on the number of digits.
  std::string_view algorithm() const { return hex.size() == 32 ? "MD5" : "SHA256"; }
};

/// Returns the digest of the whole file, by OpenSSL's algorithm of this name. Errors: the file cannot be read; the algorithm does
/// not exist.
base::Result<std::string> file_digest(const std::string& path, std::string_view algorithm);

}  // namespace cohort::files
