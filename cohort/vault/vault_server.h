/// VaultServer: holds memory files for the workers of a node, in the launcher, so that they outlive workers that die. The kernel
/// frees them with the launcher, however that ends.
///
/// Workers of this node, which know the name, put files in and take them out as descriptors; both sides refuse other users'
/// processes (SO_PEERCRED). Ranks of other nodes write and read over TCP, once they have proved that they are of one of the
/// round's nodes: by a secret of the two launchers, which makes it from the public keys that they have told each other in the
/// rendezvous, by the job's token, if there is one, and by this vault's ticket. Workers know none of the secrets: their own
/// launchers prove for them. Nothing that a client does holds up the others.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/store/tls/key_pair.h"
#include "cohort/vault/message.h"
#include "cohort/vault/remote_connection.h"
#include "cohort/vault/vault.h"

namespace cohort::vault {

/// Thread-safety: all functions may be called from any thread. A thread of its own serves the clients.
class VaultServer {
 public:
  /// Of one kind. When there are more, the oldest goes that has not proved itself, or else the new one.
  static constexpr size_t kMostConnections = 1024;

  /// `token`: the agents' (store/tcp/token.h); "" if they have none.
  static base::Result<std::unique_ptr<VaultServer>> start(const std::string& token);
  ~VaultServer();
  VaultServer(const VaultServer&) = delete;
  VaultServer& operator=(const VaultServer&) = delete;

  /// What workers find it by: an abstract UNIX address.
  const std::string& name() const { return name_; }
  /// What the other launchers must know of this one to prove anything to it; text without white space.
  std::string public_key() const;
  /// From now on ranks of these nodes can connect, to this numeric address of this host alone, which stays open where it is the
  /// same as before. `public_keys`: by node; "" of a node without snapshots.
  base::Result<void> serve_nodes(const std::string& address, const std::vector<std::string>& public_keys);

 private:
  VaultServer(std::string token, store::KeyPair keys);
  void run();
  void accept_local();
  void accept_remote(int listener);
  /// False: the connection is over.
  bool serve_local(const base::Fd& connection);
  Reply answer(const Request& request, base::Fd received, const base::Fd** given);
  Reply answer_take(const Request& request, const base::Fd** given);
  Reply answer_prove(const Request& request);
  std::string where();
  /// What the launcher of `node` has, too, for connections to the vault with this ticket; "" where it has told no public key.
  std::string key_with(uint32_t node, std::string_view ticket);

  const std::string token_;
  const store::KeyPair keys_;
  const std::string ticket_;
  std::string name_;
  base::Fd listener_;
  base::Fd wake_;
  std::vector<base::Fd> local_;
  std::vector<std::unique_ptr<RemoteConnection>> remote_;
  Vault vault_;
  std::mutex mutex_;  ///< of what stands below
  std::vector<base::Fd> listeners_;
  std::vector<std::string> public_keys_;  ///< of the nodes
  std::string address_;
  int port_ = 0;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace cohort::vault
