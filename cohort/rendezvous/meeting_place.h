/// MeetingPlace: the store in which nodes meet, hosted here or elsewhere. Private to this folder.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/settings.h"
#include "cohort/store/keys/patience.h"
#include "cohort/store/keys/store.h"
#include "cohort/store/tcp/tcp_server.h"

namespace cohort::rendezvous {

/// After this long without a visible step, the launcher says for what it waits.
inline constexpr std::chrono::milliseconds kRendezvousSilence = std::chrono::seconds(10);

class MeetingPlace {
 public:
  /// Hosts the store where this node is to. Errors: what can be told without others.
  static base::Result<std::unique_ptr<MeetingPlace>> open(const Settings& settings);

  /// Waits until the store can be reached, `timeout` at most; gives up early when `stops` becomes true.
  base::Result<std::unique_ptr<store::Store>> connect(std::chrono::milliseconds timeout,
                                                      const std::atomic<bool>& stops);

  bool is_hosted_here() const { return server_ != nullptr; }
  /// The store may be away for a while and come back as it was.
  bool may_return() const { return settings_.backend == Settings::Backend::kEtcd; }
  /// A store of another node that does not answer may be silent for so long from now on, and is said to be. One that has gone is
  /// noticed as before.
  void allow_silence(std::chrono::milliseconds time);
  /// Connections to the store hosted here.
  size_t num_clients() const { return server_ ? server_->num_clients() : 0; }
  /// "node0:29400"
  std::string name() const;
  /// What may be wrong with the place as far as this node can see; empty if nothing is.
  const std::string& doubt() const { return doubt_; }
  /// Of this node, and of the store as this node sees it; numeric. Empty before connect(), and of a store without address.
  const std::string& own_address() const { return own_address_; }
  const std::string& store_address() const { return store_address_; }
  /// What to say when the store is gone.
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
  /// By --node-rank or a scheduler's variable.
  bool is_later_node() const;
  std::string loopback() const;
  base::Error lost_guest(const base::Error& cause) const;
  /// Where this node connects to.
  std::string host_to_ask() const;

  Settings settings_;
  std::string token_;
  /// The endpoint is this host by its name or address.
  bool is_here_ = false;
  /// Another node hosts the store, but the endpoint means this host.
  bool is_lost_guest_ = false;
  /// It would host, but another agent had the port.
  bool is_passed_over_ = false;
  std::unique_ptr<store::TcpServer> server_;
  const std::shared_ptr<store::Patience> patience_ = std::make_shared<store::Patience>();
  int port_ = 0;
  std::string doubt_;
  std::string own_address_;
  std::string store_address_;
};

}  // namespace cohort::rendezvous
