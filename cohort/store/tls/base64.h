/// Base64 with padding (RFC 4648), the encoding of bytes in etcd's JSON. Pure. Private to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cohort::store {

std::string to_base64(std::string_view bytes);
/// Returns nothing if the text is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace cohort::store
