/// VaultServer: holds memory files for the workers of a node, in the launcher, so that they outlive workers that die. The kernel
/// frees them with the launcher, however that ends.
///
/// Workers of this node, which know the name, put files in and take them out as descriptors; both sides refuse other users'
/// processes (SO_PEERCRED). Ranks of other nodes write and read over TCP, once they have proved that they have the job's
/// token and this vault's ticket, which only its own workers are told. Nothing that a client does holds up the others.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/file.h"
#include "cohort/base/result.h"
#include "cohort/vault/message.h"
#include "cohort/vault/remote_connection.h"
#include "cohort/vault/vault.h"

namespace cohort::vault {

/// Thread-safety: all functions may be called from any thread. A thread of its own serves the clients.
class VaultServer {
 public:
  /// Of one kind; the oldest that has not proved itself goes when there are more.
  static constexpr size_t kMostConnections = 1024;

  /// `token`: the agents' (store/token.h); "" if they have none.
  static base::Result<std::unique_ptr<VaultServer>> start(const std::string& token);
  ~VaultServer();
  VaultServer(const VaultServer&) = delete;
  VaultServer& operator=(const VaultServer&) = delete;

  /// What workers find it by: an abstract UNIX address.
  const std::string& name() const { return name_; }
  /// From now on ranks of other nodes can connect, to this numeric address of this host alone. A second call with the same
  /// address changes nothing.
  base::Result<void> serve_nodes(const std::string& address);

 private:
  explicit VaultServer(std::string token);
  void run();
  void accept_local();
  void accept_remote(int listener);
  /// False: the connection is over.
  bool serve_local(const base::Fd& connection);
  Reply answer(const Request& request, base::Fd received, const base::Fd** given);
  Reply answer_take(const Request& request, const base::Fd** given);
  Reply answer_prove(const Request& request);
  std::string where();

  const std::string token_;
  const std::string ticket_;
  std::string name_;
  base::Fd listener_;
  base::Fd wake_;
  std::vector<base::Fd> local_;
  std::vector<std::unique_ptr<RemoteConnection>> remote_;
  Vault vault_;
  std::mutex mutex_;  ///< of what stands below
  std::vector<base::Fd> listeners_;
  std::string address_;
  int port_ = 0;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace cohort::vault
