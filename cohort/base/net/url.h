/// Parses URLs and the parts of them that users write: "tcp://node0:29500?rank=1", "[fd00::1]:2379", "node0". Pure; accepts every
/// text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::base {

/// The part of a URL before its path.
struct HostAndPort {
  /// An IPv6 address without its brackets.
  std::string host;
  /// The port as written. Absent if there is no colon.
  std::optional<std::string> port = {};
};
/// Splits "host", "host:port", "[v6]", "[v6]:port", and a bare IPv6 address, which has no port.
HostAndPort split_host_and_port(std::string_view text);

using QueryParameters = std::multimap<std::string, std::string>;
/// Parses "a=b&c=d" and decodes "%41" and "+"; a malformed escape stays as it is. A name without "=" has an empty value.
QueryParameters parse_query(std::string_view query);

struct Url {
  /// The scheme, such as "tcp". Empty if there is no "://".
  std::string scheme;
  HostAndPort place;
  /// The path, beginning with "/". Empty if there is none.
  std::string path;
  QueryParameters parameters;
};
Url parse_url(std::string_view text);

}  // namespace cohort::base
