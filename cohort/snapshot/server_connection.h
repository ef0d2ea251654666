/// ServerConnection: a worker's connection to its launcher's snapshot server. RemoteServerConnection: a connection to that of
/// another node.
///
/// Thread-safety: one thread at a time per object.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/snapshot/message.h"

namespace cohort::snapshot {

struct StoredFile {
  std::string id;
  base::Fd fd;
  uint64_t size = 0;
};

/// Blocks until the launcher answers, at most 10 s; it answers at once unless it is stopped.
class ServerConnection {
 public:
  /// Connects. Errors: no process has the name, or another user's process has it.
  static base::Result<ServerConnection> connect(const std::string& name);

  /// Returns "ADDRESS PORT TICKET", for RemoteServerConnection of ranks of other nodes; "" if they cannot connect.
  base::Result<std::string> where();
  base::Result<void> put(const std::string& id, const base::Fd& fd);
  base::Result<std::vector<StoredFile>> take_all();
  base::Result<void> drop(const std::string& id);

  struct Proofs {
    std::string client;
    std::string server;
  };
  /// Returns the proofs for a connection to the server of `node`.
  base::Result<Proofs> prove(int node, const std::string& ticket, const std::string& server_nonce,
                             const std::string& client_nonce);

 private:
  explicit ServerConnection(base::Fd connection) : connection_(std::move(connection)) {}
  base::Result<Reply> ask(const Request& request, const base::Fd* given = nullptr, base::Fd* received = nullptr);

  base::Fd connection_;
};

/// Blocks until the other end has received or sent the bytes, or 30 s have passed without any.
class RemoteServerConnection {
 public:
  struct Nodes {
    int own = 0;
    int other = 0;
  };
  /// Connects. `where` is the result of ServerConnection::where() on the other node. `own` makes the proofs, because workers do
  /// not know the launchers' secrets.
  static base::Result<RemoteServerConnection> connect(ServerConnection& own, const Nodes& nodes,
                                                      const std::string& where);

  /// Creates an empty file, unless there is one of this size.
  base::Result<void> make(const std::string& id, uint64_t size);
  base::Result<void> write(const std::string& id, uint64_t offset, std::span<const std::byte> bytes);
  base::Result<void> read(const std::string& id, uint64_t offset, std::span<std::byte> bytes);
  int socket() const { return socket_.get(); }

 private:
  RemoteServerConnection(base::Fd socket, std::string name) : socket_(std::move(socket)), name_(std::move(name)) {}
  base::Result<void> greet(ServerConnection& own, const Nodes& nodes, const std::string& ticket);
  base::Result<void> send(std::span<const std::byte> bytes);
  base::Result<void> receive(std::span<std::byte> bytes);
  base::Result<void> receive_answer();
  base::Error lost(int error_number) const;

  base::Fd socket_;
  std::string name_;
};

}  // namespace cohort::snapshot
