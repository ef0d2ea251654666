/// SnapshotServer: keeps memory files for the workers of a node in the launcher, so that the files outlive
/// workers that die. The kernel frees them when the launcher ends, in any way.
///
/// Workers of this node, which know its name, pass files as descriptors in both directions; both sides refuse other users'
/// processes (SO_PEERCRED). Ranks of other nodes write and read over TCP, after they have proved that they belong to one of the
/// round's nodes. The proof uses a secret of the two launchers (made from the public keys that they exchange in the rendezvous),
/// the job's token, if there is one, and this server's ticket. Workers know none of these secrets: their own launchers make the
/// proofs for them. No client can block the others.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/snapshot/message.h"
#include "cohort/snapshot/remote_client.h"
#include "cohort/snapshot/server_files.h"
#include "cohort/store/tls/key_pair.h"

namespace cohort::snapshot {

/// Thread-safety: all functions may be called from any thread. An own thread serves the clients.
class SnapshotServer {
 public:
  /// The limit for connections of each kind. If there are more, the oldest one that has not proved itself is closed, or else the
  /// new one.
  static constexpr size_t kMostConnections = 1024;

  /// `token` is the agents' token (store/tcp/token.h); "" if they have none.
  static base::Result<std::unique_ptr<SnapshotServer>> start(const std::string& token);
  ~SnapshotServer();
  SnapshotServer(const SnapshotServer&) = delete;
  SnapshotServer& operator=(const SnapshotServer&) = delete;

  /// The abstract UNIX address of the server, for workers.
  const std::string& name() const { return name_; }
  /// The text that other launchers need to prove anything to this one, without white space.
  std::string public_key() const;
  /// Lets ranks of these nodes connect from now on, at this numeric address of this host only; the port stays open if the address
  /// is the same as before. `public_keys` are by node; "" for a node without snapshots.
  base::Result<void> serve_nodes(const std::string& address, const std::vector<std::string>& public_keys);

 private:
  SnapshotServer(std::string token, store::KeyPair keys);
  void run();
  void accept_local();
  void accept_remote(int listener);
  /// Returns false when the connection is over.
  bool serve_local(const base::Fd& connection);
  Reply answer(const Request& request, base::Fd received, const base::Fd** given);
  Reply answer_take(const Request& request, const base::Fd** given);
  Reply answer_prove(const Request& request);
  std::string where();
  /// Returns the secret that the launcher of `node` also has, for connections to the server with this ticket; "" if that launcher
  /// has no public key.
  std::string key_with(uint32_t node, std::string_view ticket);

  const std::string token_;
  const store::KeyPair keys_;
  const std::string ticket_;
  std::string name_;
  base::Fd listener_;
  base::Fd wake_;
  std::vector<base::Fd> local_;
  std::vector<std::unique_ptr<RemoteClient>> remote_;
  ServerFiles files_;
  std::mutex mutex_;  ///< guards the members below
  std::vector<base::Fd> listeners_;
  std::vector<std::string> public_keys_;  ///< of the nodes
  std::string address_;
  int port_ = 0;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace cohort::snapshot
