#include "cohort/comm/start/rendezvous_url.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <iterator>
#include <optional>

#include "cohort/base/net/address.h"
#include "cohort/base/net/url.h"
#include "cohort/base/system/env.h"
#include "cohort/rendezvous/environment/launch_environment.h"

namespace cohort::comm {
namespace {

using base::Url;
using rendezvous::LaunchEnvironment;

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

/// Returns the last value if there are several.
std::optional<std::string> parameter_of(const Url& url, const char* name) {
  const auto end = url.parameters.upper_bound(name);
  if (end == url.parameters.lower_bound(name)) return std::nullopt;
  return std::prev(end)->second;
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
  const auto text = parameter_of(url, name);
  if (!text) return std::nullopt;
  return static_cast<int>(parse_integer(*text, error_prefix(url.scheme), name));
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
                    "://", url.place.host, url.path, " has node-specific arguments(rank, world_size) already.");
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
  return base::host_and_port(plan.host, plan.port);
}

RendezvousPlan plan_rendezvous(const std::string& init_method, int rank, int world_size) {
  const auto url = base::parse_url(init_method);
  TORCH_CHECK_VALUE(!url.scheme.empty(), "[cohort] init_method \"", init_method,
                    "\" is not a URL; use env://, tcp://host:port or file:///path");
  check_known_scheme(url);
  RendezvousPlan plan{.rank = rank, .world_size = world_size};
  if (url.scheme == "file") {
    plan.kind = RendezvousPlan::Kind::kFile;
    plan.path = url.path;
    TORCH_CHECK_VALUE(!plan.path.empty(), error_prefix("file"), "path missing");
  } else if (url.scheme == "tcp") {
    const std::string port = url.place.port.value_or("");
    TORCH_CHECK_VALUE(!url.place.host.empty(), error_prefix("tcp"), "host name missing");
    TORCH_CHECK_VALUE(!port.empty(), error_prefix("tcp"), "port number missing");
    plan.host = url.place.host;
    plan.source = "init_method";
    plan.port = checked_port(parse_integer(port, error_prefix("tcp"), "port"));
  }
  resolve_ranks(url, plan);
  if (url.scheme == "env") {
    const LaunchEnvironment environment(plan.rank, plan.world_size);
    plan.source = environment.master_source();
    plan.host = require_variable(environment, "MASTER_ADDR");
    plan.port = checked_port(integer_variable(environment, "MASTER_PORT"));
  }
  const auto libuv = parameter_of(url, "use_libuv");
  plan.use_libuv = (libuv ? *libuv : base::get_env("USE_LIBUV").value_or("1")) == "1";
  plan.is_agents_store = base::get_env("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  plan.hosts_store = plan.rank == 0 && !plan.is_agents_store;
  return plan;
}

}  // namespace cohort::comm
