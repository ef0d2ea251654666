/// Base64 with padding (RFC 4648), in which etcd's JSON carries bytes. Pure. Private to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cohort::store {

std::string to_base64(std::string_view bytes);
/// Nothing for what is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace cohort::store
