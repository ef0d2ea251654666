/// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104). Pure. Private to this folder.
#pragma once

#include <string>
#include <string_view>

namespace cohort::store {

/// 32 bytes.
std::string sha256(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view message);

/// Takes as long wherever the first difference is.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace cohort::store
