#include "cohort/rendezvous/environment/settings.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cmath>
#include <functional>
#include <vector>

#include "cohort/base/net/url.h"
#include "cohort/base/text/text.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using base::Result;
using std::chrono::milliseconds;

constexpr int kDefaultMasterPort = 29500;
constexpr int kDefaultC10dPort = 29400;
constexpr int kDefaultEtcdPort = 2379;
constexpr double kLongestSeconds = 1e9;

const std::vector<std::string> kBackends = {"static", "c10d", "etcd", "etcd-v2", "file"};

// Uses torchrun's name of the flag in messages.
Error bad_flag(const char* flag, const std::string& value, const std::string& problem) {
  return Error(fmt::format("{}=\"{}\" {}", flag, value, problem));
}

Result<void> parse_num_nodes(const std::string& text, Settings* settings) {
  const auto parts = base::split(text, ':');
  const auto min = base::parse_int(parts.front());
  const auto max = base::parse_int(parts.back());
  constexpr int kMost = 1'000'000;
  if (parts.size() > 2 || !min || !max || *min < 1 || *min > *max || *max > kMost) {
    return bad_flag("--nnodes", text, "is neither a number of nodes nor MIN:MAX with 1 <= MIN <= MAX");
  }
  settings->min_nodes = static_cast<int>(*min);
  settings->max_nodes = static_cast<int>(*max);
  return {};
}

Result<void> parse_endpoint(const std::string& text, int default_port, Settings* settings) {
  const auto [host, port] = base::split_host_and_port(base::trim(text));
  const bool is_v6 = host.find(':') != std::string::npos;
  if (host.empty() || host.find_first_of("[]/, ") != std::string::npos || (is_v6 && !base::is_ipv6(host))) {
    return bad_flag("--rdzv-endpoint", text, "is not HOST, HOST:PORT or [IPV6]:PORT");
  }
  settings->host = host;
  settings->port = default_port;
  if (!port) return {};
  const auto number = base::parse_int(*port);
  if (!number || *number < 0 || *number > 65535) {
    return bad_flag("--rdzv-endpoint", text,
                    fmt::format("has the port \"{}\", which is not a number from 0 to 65535", *port));
  }
  settings->port = static_cast<int>(*number);
  return {};
}

struct Option {
  const char* name;
  const char* what;  // for "is not ..."
  std::function<bool(const std::string& value, Settings*)> take;
};

Option seconds(const char* name, milliseconds Settings::*member) {
  return {name, "a number of seconds above 0", [member](const std::string& value, Settings* settings) {
            const auto number = base::parse_double(value);
            if (!number || *number <= 0 || *number > kLongestSeconds) return false;
            settings->*member = milliseconds(std::max(1LL, std::llround(*number * 1000)));
            return true;
          }};
}

Option ignored(const char* name) {
  return {name, "", [](const std::string&, Settings*) { return true; }};
}

bool take_attempts(const std::string& value, Settings* settings) {
  const auto number = base::parse_int(value);
  if (!number || *number < 1 || *number > 1000) return false;
  settings->keep_alive_max_attempt = static_cast<int>(*number);
  return true;
}

bool take_family(const std::string& value, Settings* settings) {
  if (value != "4" && value != "6") return false;
  settings->family = value == "4" ? base::IpFamily::kV4 : base::IpFamily::kV6;
  return true;
}

bool take_is_host(const std::string& value, Settings* settings) {
  settings->is_host = base::parse_bool(value);
  return settings->is_host.has_value();
}

bool take_stable_ranks(const std::string& value, Settings* settings) {
  const auto flag = base::parse_bool(value);
  settings->stable_ranks = flag.value_or(false);
  return flag.has_value();
}

bool take_store_type(const std::string& value, Settings* settings) {
  if (value == "file" && settings->backend == Settings::Backend::kC10d) settings->backend = Settings::Backend::kFile;
  return value == "file" || value == "tcp";
}

bool take_protocol(const std::string& value, Settings* settings) {
  settings->is_https = value == "https";
  return value == "http" || value == "https";
}

Option tls_file(const char* name, std::string store::TlsOptions::*member) {
  return {name, "a path",
          [member](const auto& value, Settings* settings) { return settings->tls.*member = value, true; }};
}

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      seconds("join_timeout", &Settings::join_timeout),
      seconds("last_call_timeout", &Settings::last_call_timeout),
      seconds("close_timeout", &Settings::close_timeout),
      seconds("keep_alive_interval", &Settings::keep_alive_interval),
      seconds("read_timeout", &Settings::read_timeout),
      {"keep_alive_max_attempt", "a number from 1 to 1000", take_attempts},
      {"is_host", "true or false", take_is_host},
      {"store_type", "tcp or file", take_store_type},
      {"stable_ranks", "true or false", take_stable_ranks},
      {"ip_family", "4 or 6", take_family},
      {"bind", "an address", [](const auto& value, Settings* settings) { return settings->bind = value, true; }},
      {"token_file", "a path",
       [](const auto& value, Settings* settings) { return settings->token_file = value, true; }},
      {"protocol", "http or https", take_protocol},
      // torchrun's two backends for etcd have different names for this option.
      tls_file("cacert", &store::TlsOptions::ca_file),
      tls_file("ca_cert", &store::TlsOptions::ca_file),
      tls_file("cert", &store::TlsOptions::certificate_file),
      tls_file("ssl_cert", &store::TlsOptions::certificate_file),
      tls_file("key", &store::TlsOptions::key_file),
      tls_file("ssl_cert_key", &store::TlsOptions::key_file),
      seconds("timeout", &Settings::timeout),
      // torchrun's options without a meaning here: keep_alive_* decide when a node is lost, and the rank is --node-rank.
      ignored("heartbeat_timeout"),
      ignored("rank"),
  };
  return all;
}

// Removes quotes: 'a' and "a" are a.
std::string without_quotes(std::string text) {
  const bool is_quoted =
      text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.front() == text.back();
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

Result<void> parse_conf(const std::string& given, Settings* settings) {
  const auto text = without_quotes(base::trim(given));
  if (base::trim(text).empty()) return {};
  std::vector<std::string> names;
  bool has_quotes = text != base::trim(given);
  for (const auto& option : options()) names.emplace_back(option.name);
  for (const auto& pair : base::split(text, ',')) {
    const auto equals = pair.find('=');
    const auto name = base::trim(pair.substr(0, equals));
    const auto typed = equals == std::string::npos ? std::string() : base::trim(pair.substr(equals + 1));
    const auto value = without_quotes(typed);
    has_quotes = has_quotes || value != typed;
    if (name.empty() || value.empty()) return bad_flag("--rdzv-conf", text, "is not a list NAME=VALUE,NAME=VALUE");
    const auto& all = options();
    const auto option = std::find_if(all.begin(), all.end(), [&](const auto& each) { return name == each.name; });
    if (option == all.end()) {
      settings->warnings.push_back(fmt::format("--rdzv-conf has no option \"{}\"{}; it is ignored. There are {}", name,
                                               base::did_you_mean(name, names), base::join(names, ", ")));
      continue;
    }
    if (!option->take(value, settings)) {
      return Error(fmt::format("--rdzv-conf {}={} is not {}", name, value, option->what));
    }
  }
  if (has_quotes) {
    settings->warnings.push_back(
        fmt::format("--rdzv-conf={} has quotes in it, as a YAML file may leave them; they are ignored", given));
  }
  return {};
}

// torchrun's backends c10d and etcd-v2 use join_timeout alone.
void take_over_timeout(const std::string& backend, Settings* settings) {
  if (settings->timeout == milliseconds(0)) return;
  if (backend == "static" || backend == "etcd") {
    settings->join_timeout = settings->timeout;
    return;
  }
  settings->warnings.push_back(fmt::format(
      "--rdzv-conf timeout is ignored with --rdzv-backend={}, as by torchrun; join_timeout says how long a node waits",
      backend));
}

Result<Settings::Backend> parse_backend(const std::string& name) {
  if (name == "static") return Settings::Backend::kStatic;
  if (name == "c10d") return Settings::Backend::kC10d;
  if (name == "etcd" || name == "etcd-v2") return Settings::Backend::kEtcd;
  if (name == "file") return Settings::Backend::kFile;
  return Error(fmt::format("--rdzv-backend has no \"{}\"{}", name, base::did_you_mean(name, kBackends)))
      .with_hint("choose one of " + base::join(kBackends, ", "));
}

Result<void> place_static(const Flags& flags, Settings* settings) {
  settings->min_nodes = settings->max_nodes;  // as torchrun does
  settings->node_rank = flags.node_rank.value_or(0);
  if (settings->node_rank < 0 || settings->node_rank >= settings->max_nodes) {
    return Error(fmt::format("--node-rank={} is not below --nnodes={}", settings->node_rank, settings->max_nodes));
  }
  if (!flags.endpoint.empty()) {
    if (auto parsed = parse_endpoint(flags.endpoint, -1, settings); !parsed) return parsed;
    if (settings->port >= 0) return {};
    settings->port = flags.master_port.value_or(kDefaultMasterPort);
    return {};
  }
  settings->host = flags.master_address;
  settings->port = flags.master_port.value_or(kDefaultMasterPort);
  if (settings->port >= 0 && settings->port <= 65535) return {};
  return Error(fmt::format("--master-port={} is not a number from 0 to 65535", settings->port));
}

Result<void> place_c10d(const std::string& endpoint, Settings* settings) {
  if (auto parsed = parse_endpoint(endpoint, kDefaultC10dPort, settings); !parsed) return parsed;
  if (settings->port != 0 || settings->max_nodes == 1) return {};
  return bad_flag("--rdzv-endpoint", endpoint,
                  "has port 0, and only the node that hosts it would know which port was chosen");
}

Result<void> place_etcd(const std::string& endpoint, Settings* settings) {
  std::string address = endpoint;
  const std::string scheme = base::parse_url(endpoint).scheme;
  if (scheme == "http" || scheme == "https") {
    const bool is_https = scheme == "https";
    if (settings->is_https.value_or(is_https) != is_https) {
      return bad_flag("--rdzv-endpoint", endpoint, "contradicts the protocol of --rdzv-conf");
    }
    settings->is_https = is_https;
    address.erase(0, scheme.size() + 3);
    if (address.ends_with('/')) address.pop_back();
  }
  return parse_endpoint(address, kDefaultEtcdPort, settings);
}

// Makes sure that a typing error does not send secret data over the network unencrypted.
Result<void> check_tls(const Settings& settings) {
  const auto& [ca, certificate, key] = settings.tls;
  const bool has_files = !ca.empty() || !certificate.empty() || !key.empty();
  const bool is_https = settings.is_https.value_or(false);
  if (settings.backend != Settings::Backend::kEtcd && (has_files || is_https)) {
    return Error(
        "--rdzv-conf protocol=https, cacert, cert and key need --rdzv-backend=etcd: no other backend supports TLS");
  }
  if (has_files && !is_https) return Error("--rdzv-conf cacert, cert and key have no effect without protocol=https");
  if (!key.empty() && certificate.empty()) {
    return Error("--rdzv-conf has a key, but no certificate for it").with_hint("give cert=FILE, too");
  }
  return {};
}

Result<void> place(const Flags& flags, Settings* settings) {
  switch (settings->backend) {
    case Settings::Backend::kStandalone:
      return {};
    case Settings::Backend::kStatic:
      return place_static(flags, settings);
    case Settings::Backend::kFile:
      settings->path = flags.endpoint;
      if (!settings->path.empty()) return {};
      return Error(fmt::format("--rdzv-backend={} needs a file", flags.backend))
          .with_hint("give --rdzv-endpoint=PATH, a file in a folder that all nodes share");
    case Settings::Backend::kC10d:
      return place_c10d(flags.endpoint.empty() ? "localhost" : flags.endpoint, settings);
    case Settings::Backend::kEtcd:
      return place_etcd(flags.endpoint.empty() ? "localhost" : flags.endpoint, settings);
  }
  return {};
}

}  // namespace

std::string random_id() {
  unsigned char bytes[16] = {};
  [[maybe_unused]] const auto size = getrandom(bytes, sizeof(bytes), 0);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  std::string text;
  for (size_t i = 0; i < sizeof(bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

Result<Settings> parse_settings(const Flags& flags, Settings settings) {
  settings.run_id = flags.run_id;
  if (auto parsed = parse_num_nodes(flags.num_nodes, &settings); !parsed) return parsed.error();
  const auto backend = parse_backend(flags.backend);
  if (!backend) return backend.error();
  settings.backend = *backend;
  if (auto parsed = parse_conf(flags.conf, &settings); !parsed) return parsed.error();
  take_over_timeout(flags.backend, &settings);
  const bool is_alone = *backend == Settings::Backend::kStatic && flags.endpoint.empty() && !flags.master_port &&
                        settings.max_nodes == 1 && flags.node_rank.value_or(0) == 0;
  if (flags.standalone && settings.max_nodes > 1) {
    return bad_flag("--nnodes", flags.num_nodes, "asks for more than the one node of --standalone");
  }
  if (flags.standalone || is_alone) {
    settings.backend = Settings::Backend::kStandalone;
    settings.run_id = random_id();
  }
  if (settings.run_id.empty()) return Error("--rdzv-id is empty");
  settings.ignores_node_rank = flags.node_rank.has_value() && settings.backend != Settings::Backend::kStatic &&
                               settings.backend != Settings::Backend::kStandalone;
  if (flags.node_rank) settings.node_rank = *flags.node_rank;
  settings.is_other_node = flags.node_rank.value_or(0) > 0;
  if (auto placed = place(flags, &settings); !placed) return placed.error();
  if (settings.backend == Settings::Backend::kStandalone) return settings;
  if (auto checked = check_tls(settings); !checked) return checked.error();
  return settings;
}

}  // namespace cohort::rendezvous
