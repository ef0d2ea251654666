/// Takes URLs apart, and the pieces of them that users write: "tcp://node0:29500?rank=1", "[fd00::1]:2379", "node0". Pure;
/// nothing is an error here.
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
  /// As written; absent without a colon.
  std::optional<std::string> port = {};
};
/// "host", "host:port", "[v6]", "[v6]:port", and a bare IPv6 address, which has no port.
HostAndPort split_host_and_port(std::string_view text);

using QueryParameters = std::multimap<std::string, std::string>;
/// "a=b&c=d", with "%41" and "+" decoded; what is no escape stays as it is. A name without "=" has an empty value.
QueryParameters parse_query(std::string_view query);

struct Url {
  /// "tcp"; empty without "://".
  std::string scheme;
  HostAndPort place;
  /// From its "/" on; empty without one.
  std::string path;
  QueryParameters parameters;
};
Url parse_url(std::string_view text);

}  // namespace cohort::base
