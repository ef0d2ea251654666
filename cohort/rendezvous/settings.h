/// Settings of a rendezvous: torchrun's flags --nnodes and --rdzv-*, taken apart and checked. Pure, but for random run ids.
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

/// Flags that mean something together only, as typed; names and defaults are torchrun's.
struct Flags {
  std::string num_nodes = "1:1";
  std::string backend = "static";
  /// For etcd also "https://HOST:PORT".
  std::string endpoint;
  std::string run_id = "none";
  /// "join_timeout=600,last_call_timeout=30"
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
  /// Where the nodes meet: a store's host and port, or a file's path.
  std::string host;
  int port = 0;
  std::string path;
  std::string run_id;
  int node_rank = 0;
  /// Under which others reach this node; found out if empty.
  std::string local_address;
  int local_world_size = 1;
  std::string role = "default";
  int max_restarts = 0;
  /// Of --rdzv-conf.
  std::chrono::milliseconds join_timeout{600'000};
  /// As given; counts as join_timeout where torchrun looks at it, with the backends static and etcd. 0: not given.
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds last_call_timeout{30'000};
  std::chrono::milliseconds close_timeout{30'000};
  std::chrono::milliseconds keep_alive_interval{5'000};
  int keep_alive_max_attempt = 3;
  /// For an answer of the store.
  std::chrono::milliseconds read_timeout{60'000};
  /// Whether this node hosts the store; found out if not given.
  std::optional<bool> is_host;
  /// The address the store listens on; empty: all interfaces of `family`.
  std::string bind;
  base::IpFamily family = base::IpFamily::kAny;
  /// A file with the store's secret.
  std::string token_file;
  /// TLS with etcd: of --rdzv-conf, or of an endpoint that begins with "https://".
  std::optional<bool> is_https;
  store::TlsOptions tls;
  /// What the other nodes' agents are to know of this one's key pair, for secrets of two nodes; one line.
  std::string public_key;
  /// Nodes that stay keep their ranks from round to round.
  bool stable_ranks = false;
  /// Known not to be the node that hosts the store, whatever its endpoint says.
  bool is_other_node = false;
  /// Given although the backend does not use it; reported once.
  bool ignores_node_rank = false;
  /// What was ignored in --rdzv-conf, one sentence each.
  std::vector<std::string> warnings;

  /// After which a silent node counts as lost.
  std::chrono::milliseconds lost_after() const { return keep_alive_interval * keep_alive_max_attempt; }
};

/// In the form of a UUID (version 4), as torchrun's.
std::string random_id();

/// Completes `settings`, which has what was final when it was typed, by what `flags` mean. Errors name the flag and its value.
/// An unknown key of --rdzv-conf is a warning with a suggestion: torchrun hands all of them to its backends, which take what they
/// know.
/// --standalone, and one static node without endpoint and port, mean kStandalone with a random run id, as in torchrun.
base::Result<Settings> parse_settings(const Flags& flags, Settings settings = {});

}  // namespace cohort::rendezvous
