/// The secret that the two ends of a TCP connection between nodes must share. Private to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cohort::snapshot {

/// Returns the key of a connection. It depends on the agents' token, which workers do not know, on the common secret of both
/// launchers' key pairs, and on the ticket of the server.
std::string shared_key(const std::string& token, std::string_view secret, std::string_view ticket);

std::string in_hex(std::string_view bytes);
/// Returns nothing for any other text.
std::optional<std::string> from_hex(std::string_view text);

}  // namespace cohort::snapshot
