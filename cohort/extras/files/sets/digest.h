/// Digests of files, to see whether a download is what was published.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

namespace cohort::files {

/// A published digest in small hexadecimal digits. MD5 (32 digits) finds damage, but not someone who means harm; SHA-256 has 64.
struct Digest {
  std::string hex;
  /// "MD5" or "SHA256", by the number of digits.
  std::string_view algorithm() const { return hex.size() == 32 ? "MD5" : "SHA256"; }
};

/// The digest of the whole file, by the named algorithm of OpenSSL. Errors: the file cannot be read; no such algorithm.
base::Result<std::string> file_digest(const std::string& path, std::string_view algorithm);

}  // namespace cohort::files
