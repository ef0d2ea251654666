/// What the two ends of a TCP connection between nodes must share. Private to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cohort::vault {

/// The agents' token, which a worker does not know, what the key pairs of both launchers have in common, and the ticket of the
/// vault that is connected to.
std::string shared_key(const std::string& token, std::string_view secret, std::string_view ticket);

std::string in_hex(std::string_view bytes);
/// Nothing for another text.
std::optional<std::string> from_hex(std::string_view text);

}  // namespace cohort::vault
