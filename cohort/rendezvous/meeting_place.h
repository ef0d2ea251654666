/// MeetingPlace: the store in which nodes meet, hosted by this node or another. Private to this folder.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/environment/settings.h"
#include "cohort/store/keys/patience.h"
#include "cohort/store/keys/store.h"
#include "cohort/store/tcp/tcp_server.h"

namespace cohort::rendezvous {

/// After this time without visible progress, the launcher says what it waits for.
inline constexpr std::chrono::milliseconds kRendezvousSilence = std::chrono::seconds(10);

class MeetingPlace {
 public:
  /// Hosts the store if this node should. Errors are those that can be found without other nodes.
  static base::Result<std::unique_ptr<MeetingPlace>> open(const Settings& settings);

  /// Waits until the store can be reached, at most `timeout`. Returns early when `stops` becomes true.
  base::Result<std::unique_ptr<store::Store>> connect(std::chrono::milliseconds timeout,
                                                      const std::atomic<bool>& stops);

  bool is_hosted_here() const { return server_ != nullptr; }
  /// Whether the store may be away for a while and return with its content.
  bool may_return() const { return settings_.backend == Settings::Backend::kEtcd; }
  /// Extends the time for which another node's store may be silent from now on; a log line then says so. A store that has gone is
  /// noticed as before.
  void allow_silence(std::chrono::milliseconds time);
  /// The number of connections to the store hosted here.
  size_t num_clients() const { return server_ ? server_->num_clients() : 0; }
  /// Returns the endpoint, such as "node0:29400".
  std::string name() const;
  /// A problem with the endpoint as far as this node can see; empty if there is none.
  const std::string& doubt() const { return doubt_; }
  /// The numeric addresses of this node, and of the store as this node sees it. Empty before connect(), and for a store without
  /// an address.
  const std::string& own_address() const { return own_address_; }
  const std::string& store_address() const { return store_address_; }
  /// The error for a store that is gone.
  base::Error lost(const base::Error& cause) const;

 private:
  explicit MeetingPlace(const Settings& settings) : settings_(settings) {}
  base::Result<std::unique_ptr<store::Store>> connect_once(std::chrono::milliseconds timeout);
  base::Result<std::unique_ptr<store::Store>> connect_to_server(std::chrono::milliseconds timeout);
  base::Result<std::unique_ptr<store::Store>> connect_to_etcd(std::chrono::milliseconds timeout);
  base::Result<std::unique_ptr<store::Store>> open_file();
  base::Result<void> choose_role();
  base::Result<void> host();

  store::TcpServerOptions server_options() const;
  std::chrono::milliseconds answer_timeout() const;
  /// Whether --node-rank or a scheduler's variable says that this node is not the first.
  bool is_later_node() const;
  std::string loopback() const;
  base::Error lost_guest(const base::Error& cause) const;
  /// The host to which this node connects.
  std::string host_to_ask() const;

  Settings settings_;
  std::string token_;
  /// Whether the endpoint is this host, by its name or address.
  bool is_here_ = false;
  /// Whether another node hosts the store although the endpoint means this host.
  bool is_lost_guest_ = false;
  /// Whether this node should host the store, but another agent had the port.
  bool is_passed_over_ = false;
  std::unique_ptr<store::TcpServer> server_;
  const std::shared_ptr<store::Patience> patience_ = std::make_shared<store::Patience>();
  int port_ = 0;
  std::string doubt_;
  std::string own_address_;
  std::string store_address_;
};

}  // namespace cohort::rendezvous
