#include "cohort/comm/start/rendezvous_url.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <map>
#include <optional>

#include "cohort/base/env.h"
#include "cohort/rendezvous/launch_environment.h"

namespace cohort::comm {
namespace {

using rendezvous::LaunchEnvironment;

struct Url {
  std::string scheme;
  std::string host;
  std::string port;
  std::string path;
  std::map<std::string, std::string> query;
};

std::string error_prefix(const std::string& scheme) {
  return "Error initializing torch.distributed using " + scheme + ":// rendezvous: ";
}

int64_t parse_integer(const std::string& text, const std::string& prefix, const std::string& what) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + text.size() && !text.empty(), prefix, what,
                    " must be an integer, got \"", text, "\"");
  return value;
}

std::map<std::string, std::string> parse_query(const std::string& text) {
  std::map<std::string, std::string> query;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('&', begin), text.size());
    const auto pair = text.substr(begin, end - begin);
    const auto equals = pair.find('=');
    if (equals != std::string::npos) query[pair.substr(0, equals)] = pair.substr(equals + 1);
    begin = end + 1;
  }
  return query;
}

Url parse_url(const std::string& text) {
  Url url;
  const auto colon = text.find("://");
  TORCH_CHECK_VALUE(colon != std::string::npos, "init_method \"", text,
                    "\" is not a URL; use env://, tcp://host:port or file:///path");
  url.scheme = text.substr(0, colon);
  auto rest = text.substr(colon + 3);
  if (const auto mark = rest.find('?'); mark != std::string::npos) {
    url.query = parse_query(rest.substr(mark + 1));
    rest = rest.substr(0, mark);
  }
  const auto slash = rest.find('/');
  auto authority = rest.substr(0, slash);
  if (slash != std::string::npos) url.path = rest.substr(slash);
  const auto bracket = authority.find(']');
  const auto port_colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  if (port_colon != std::string::npos) url.port = authority.substr(port_colon + 1);
  url.host = authority.substr(0, port_colon);
  if (url.host.size() > 2 && url.host.front() == '[') url.host = url.host.substr(1, url.host.size() - 2);
  return url;
}

std::string require_variable(const LaunchEnvironment& environment, const char* name) {
  const auto value = environment.get(name);
  TORCH_CHECK_VALUE(value, error_prefix("env"), "environment variable ", name, " expected, but not set",
                    environment.hint());
  return *value;
}

int integer_variable(const LaunchEnvironment& environment, const char* name) {
  return static_cast<int>(parse_integer(require_variable(environment, name), error_prefix("env"),
                                        std::string("environment variable ") + name));
}

uint16_t checked_port(int64_t port) {
  TORCH_CHECK_VALUE(port >= 0 && port < 65536, "port must have value from 0 to 65535 but was ", port, ".");
  return static_cast<uint16_t>(port);
}

std::optional<int> query_integer(const Url& url, const char* name) {
  const auto found = url.query.find(name);
  if (found == url.query.end()) return std::nullopt;
  return static_cast<int>(parse_integer(found->second, error_prefix(url.scheme), name));
}

void check_known_scheme(const Url& url) {
  TORCH_CHECK_VALUE(url.scheme == "env" || url.scheme == "tcp" || url.scheme == "file", "No rendezvous handler for ",
                    url.scheme, ":// (known: env://, tcp://, file://)");
}

void resolve_ranks(const Url& url, RendezvousPlan& plan) {
  const bool from_env = url.scheme == "env";
  const auto url_rank = query_integer(url, "rank");
  const auto url_world_size = query_integer(url, "world_size");
  TORCH_CHECK_VALUE((plan.rank < 0 && plan.world_size < 0) || (!url_rank && !url_world_size), "The url: ", url.scheme,
                    "://", url.host, url.path, " has node-specific arguments(rank, world_size) already.");
  if (plan.rank < 0 && url_rank) plan.rank = *url_rank;
  if (plan.world_size < 0 && url_world_size) plan.world_size = *url_world_size;
  if (from_env) {
    const LaunchEnvironment environment(plan.rank, plan.world_size);
    if (plan.rank < 0) plan.rank = integer_variable(environment, "RANK");
    if (plan.world_size < 0) plan.world_size = integer_variable(environment, "WORLD_SIZE");
  }
  TORCH_CHECK_VALUE(plan.rank != -1, error_prefix(url.scheme), "rank parameter missing");
  TORCH_CHECK_VALUE(plan.world_size != -1, error_prefix(url.scheme), "world size parameter missing");
  TORCH_CHECK_VALUE(plan.world_size > 0, error_prefix(url.scheme), "world size must be positive, got ",
                    plan.world_size);
  TORCH_CHECK_VALUE(plan.rank >= 0 && plan.rank < plan.world_size, error_prefix(url.scheme), "rank must be from 0 to ",
                    plan.world_size - 1, " (world_size=", plan.world_size, "), got ", plan.rank);
}

}  // namespace

std::string place_of_rank_0(const RendezvousPlan& plan) {
  if (plan.kind != RendezvousPlan::Kind::kTcp || plan.is_agents_store) return {};
  return plan.host + ":" + std::to_string(plan.port);
}

RendezvousPlan plan_rendezvous(const std::string& init_method, int rank, int world_size) {
  const auto url = parse_url(init_method);
  check_known_scheme(url);
  RendezvousPlan plan{.rank = rank, .world_size = world_size};
  if (url.scheme == "file") {
    plan.kind = RendezvousPlan::Kind::kFile;
    plan.path = url.path;
    TORCH_CHECK_VALUE(!plan.path.empty(), error_prefix("file"), "path missing");
  } else if (url.scheme == "tcp") {
    TORCH_CHECK_VALUE(!url.host.empty(), error_prefix("tcp"), "host name missing");
    TORCH_CHECK_VALUE(!url.port.empty(), error_prefix("tcp"), "port number missing");
    plan.host = url.host;
    plan.source = "init_method";
    plan.port = checked_port(parse_integer(url.port, error_prefix("tcp"), "port"));
  }
  resolve_ranks(url, plan);
  if (url.scheme == "env") {
    const LaunchEnvironment environment(plan.rank, plan.world_size);
    plan.source = environment.master_source();
    plan.host = require_variable(environment, "MASTER_ADDR");
    plan.port = checked_port(integer_variable(environment, "MASTER_PORT"));
  }
  const auto libuv = url.query.find("use_libuv");
  plan.use_libuv = (libuv != url.query.end() ? libuv->second : base::get_env("USE_LIBUV").value_or("1")) == "1";
  plan.is_agents_store = base::get_env("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  plan.hosts_store = plan.rank == 0 && !plan.is_agents_store;
  return plan;
}

}  // namespace cohort::comm
