/// Settings of a rendezvous: parses and checks torchrun's flags --nnodes and --rdzv-*. Pure, except for random run ids.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/net/address.h"
#include "cohort/store/tls/tls_options.h"

namespace cohort::rendezvous {

/// Flags that depend on each other, as typed. Names and defaults are torchrun's.
struct Flags {
  std::string num_nodes = "1:1";
  std::string backend = "static";
  /// HOST, HOST:PORT or [IPV6]:PORT; with etcd also "https://HOST:PORT".
  std::string endpoint;
  std::string run_id = "none";
  /// A list such as "join_timeout=600,last_call_timeout=30".
  std::string conf;
  bool standalone = false;
  /// For the static backend; others ignore it with a warning.
  std::optional<int> node_rank;
  std::string master_address = "127.0.0.1";
  std::optional<int> master_port;
};

struct Settings {
  enum class Backend { kStandalone, kStatic, kC10d, kEtcd, kFile };
  Backend backend = Backend::kStandalone;
  int min_nodes = 1;
  int max_nodes = 1;
  /// The place where the nodes meet: a store's host and port, or a file's path.
  std::string host;
  int port = 0;
  std::string path;
  std::string run_id;
  int node_rank = 0;
  /// The address under which others reach this node. If empty, it is found automatically.
  std::string local_address;
  int local_world_size = 1;
  std::string role = "default";
  int max_restarts = 0;
  /// Set by --rdzv-conf.
  std::chrono::milliseconds join_timeout{600'000};
  /// The value given. torchrun's backends static and etcd use it instead of join_timeout, and so does Cohort. 0 means that it was
  /// not given.
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds last_call_timeout{30'000};
  std::chrono::milliseconds close_timeout{30'000};
  std::chrono::milliseconds keep_alive_interval{5'000};
  int keep_alive_max_attempt = 3;
  /// The limit for an answer of the store.
  std::chrono::milliseconds read_timeout{60'000};
  /// Whether this node hosts the store. If absent, it is found automatically.
  std::optional<bool> is_host;
  /// The address on which the store listens. Empty means all interfaces of `family`.
  std::string bind;
  base::IpFamily family = base::IpFamily::kAny;
  /// The file with the store's token.
  std::string token_file;
  /// Whether to use TLS with etcd: set by --rdzv-conf, or by an endpoint that begins with "https://".
  std::optional<bool> is_https;
  store::TlsOptions tls;
  /// The public part of this node's key pair, one line for the other nodes' agents, from which two nodes make a common secret.
  std::string public_key;
  /// Whether nodes that stay keep their ranks from round to round.
  bool stable_ranks = false;
  /// Whether this node is known not to host the store, even if the endpoint says so.
  bool is_other_node = false;
  /// Whether node_rank was given although the backend does not use it; reported once.
  bool ignores_node_rank = false;
  /// Warnings about ignored parts of --rdzv-conf, one sentence each.
  std::vector<std::string> warnings;

  /// The time after which a silent node counts as lost.
  std::chrono::milliseconds lost_after() const { return keep_alive_interval * keep_alive_max_attempt; }
};

/// Returns a random UUID (version 4), as torchrun's.
std::string random_id();

/// Completes `settings`, which has the values that needed no parsing, from `flags`. Errors name the flag and its value. An
/// unknown key of --rdzv-conf is a warning with a suggestion: torchrun passes all keys to its backends, which use those that they
/// know. --standalone, or one static node without endpoint and port, means kStandalone with a random run id, as in torchrun.
base::Result<Settings> parse_settings(const Flags& flags, Settings settings = {});

}  // namespace cohort::rendezvous
