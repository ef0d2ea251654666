#include "cohort/snapshot/server_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

#include "cohort/base/text/text.h"
#include "cohort/shm/memory/unix_socket.h"
#include "cohort/snapshot/secret.h"
#include "cohort/store/stream/socket.h"
#include "cohort/store/tcp/token.h"

namespace cohort::snapshot {

using base::Error;
using base::Fd;
using base::Result;

namespace {

constexpr timeval kLocalTime{10, 0};
constexpr timeval kRemoteTime{30, 0};
constexpr std::chrono::seconds kConnectTime{10};

void limit_waits(const Fd& socket, const timeval& time) {
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

Request request_for(Op op, const std::string& id = {}) {
  Request request{.op = op};
  set_id(request.id, id);
  return request;
}

Error refused(const Reply& reply) { return described_error(text_in(reply)); }

}  // namespace

Result<ServerConnection> ServerConnection::connect(const std::string& name) {
  Fd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const shm::UnixAddress address(name);
  if (!connection || ::connect(connection.get(), address.get(), address.length()) != 0) {
    return Error(fmt::format("cannot connect to the launcher (COHORT_SNAPSHOTS={}): {}", name, base::errno_text(errno)))
        .with_hint("see whether the launcher has ended, or is in another network namespace than this process");
  }
  if (!shm::own_users_process(connection)) {
    return Error(fmt::format("the process that answers for COHORT_SNAPSHOTS={} belongs to another user", name));
  }
  limit_waits(connection, kLocalTime);
  return ServerConnection(std::move(connection));
}

Result<Reply> ServerConnection::ask(const Request& request, const Fd* given, Fd* received) {
  const std::span<const char> bytes(reinterpret_cast<const char*>(&request), sizeof(request));
  Reply reply;
  const std::span<char> buffer(reinterpret_cast<char*>(&reply), sizeof(reply));
  const auto lost = [] { return Error(fmt::format("the launcher does not answer: {}", base::errno_text(errno))); };
  errno = 0;
  if (shm::send_with_fd(connection_, bytes, given) != sizeof(request)) return lost();
  shm::MessageWithFd message = shm::receive_with_fd(connection_, buffer);
  if (message.num_bytes == 0) return Error("the launcher has closed the connection");
  if (message.num_bytes < 0) return lost();
  if (message.num_bytes != sizeof(reply) || message.is_cut || reply.magic != kMagic) {
    return Error("the launcher's answer is not understood: it is of another release of Cohort");
  }
  if (!reply.is_ok) return refused(reply);
  if (received) *received = std::move(message.fd);
  return reply;
}

Result<std::string> ServerConnection::where() {
  const Result<Reply> reply = ask(request_for(Op::kWhere));
  if (!reply) return reply.error();
  return text_in(*reply);
}

Result<void> ServerConnection::put(const std::string& id, const Fd& fd) {
  const Result<Reply> reply = ask(request_for(Op::kPut, id), &fd);
  if (!reply) return reply.error();
  return {};
}

Result<std::vector<StoredFile>> ServerConnection::take_all() {
  std::vector<StoredFile> files;
  for (;;) {
    Request request = request_for(Op::kTake);
    request.index = static_cast<uint32_t>(files.size());
    Fd fd;
    const Result<Reply> reply = ask(request, nullptr, &fd);
    if (!reply) return reply.error();
    const std::string id = id_in(reply->id);
    if (id.empty()) return files;
    if (!fd)
      return Error("the launcher has no descriptor left to give")
          .with_hint("raise the limit of open files (ulimit -n)");
    files.push_back({id, std::move(fd), reply->size});
  }
}

Result<void> ServerConnection::drop(const std::string& id) {
  const Result<Reply> reply = ask(request_for(Op::kDrop, id));
  if (!reply) return reply.error();
  return {};
}

Result<ServerConnection::Proofs> ServerConnection::prove(int node, const std::string& ticket,
                                                         const std::string& server_nonce,
                                                         const std::string& client_nonce) {
  Request request = request_for(Op::kProve);
  request.index = static_cast<uint32_t>(node);
  std::memcpy(request.ticket, ticket.data(), std::min(ticket.size(), sizeof(request.ticket)));
  const std::string nonces = server_nonce + client_nonce;
  std::memcpy(request.nonces, nonces.data(), std::min(nonces.size(), sizeof(request.nonces)));
  const Result<Reply> reply = ask(request);
  if (!reply) return reply.error();
  const std::string text = text_in(*reply);
  if (text.size() != 2 * kSecretBytes) return Error("the launcher's proof is not understood");
  return Proofs{text.substr(0, kSecretBytes), text.substr(kSecretBytes)};
}

Result<RemoteServerConnection> RemoteServerConnection::connect(ServerConnection& own, const Nodes& nodes,
                                                               const std::string& where) {
  const std::vector<std::string> words = base::split(where, ' ');
  const auto port = words.size() == 3 ? base::parse_int(words[1]) : std::nullopt;
  const auto ticket = words.size() == 3 ? from_hex(words[2]) : std::nullopt;
  if (!port || *port <= 0 || *port > 65535 || !ticket || ticket->size() != kSecretBytes) {
    return Error("the other node's launcher takes no connections");
  }
  Result<Fd> socket = store::connect_to(words[0], static_cast<int>(*port), kConnectTime);
  if (!socket) return socket.error();
  limit_waits(*socket, kRemoteTime);
  RemoteServerConnection server(std::move(*socket), words[0] + ":" + words[1]);
  if (Result<void> greeted = server.greet(own, nodes, *ticket); !greeted) return greeted.error();
  return server;
}

Result<void> RemoteServerConnection::greet(ServerConnection& own, const Nodes& nodes, const std::string& ticket) {
  std::string server_nonce(kSecretBytes, '\0');
  const std::span<std::byte> buffer(reinterpret_cast<std::byte*>(server_nonce.data()), server_nonce.size());
  if (Result<void> received = receive(buffer); !received) return received;
  const std::string client_nonce = store::random_nonce();
  const Result<ServerConnection::Proofs> proofs = own.prove(nodes.other, ticket, server_nonce, client_nonce);
  if (!proofs) return proofs.error();
  Greeting greeting{.node = static_cast<uint32_t>(nodes.own)};
  std::memcpy(greeting.nonce, client_nonce.data(), sizeof(greeting.nonce));
  std::memcpy(greeting.proof, proofs->client.data(), sizeof(greeting.proof));
  if (Result<void> sent = send(std::as_bytes(std::span(&greeting, 1))); !sent) return sent;
  std::string proof(kSecretBytes, '\0');
  const Result<void> answered = receive({reinterpret_cast<std::byte*>(proof.data()), proof.size()});
  if (!answered || !store::is_same_proof(proof, proofs->server)) {
    return Error(fmt::format("the launcher at {} and this node's do not trust each other", name_))
        .with_hint("give all nodes the same token (COHORT_TOKEN or the token file of --rdzv-conf)");
  }
  return {};
}

Result<void> RemoteServerConnection::make(const std::string& id, uint64_t size) {
  Request request = request_for(Op::kMake, id);
  request.size = size;
  if (Result<void> sent = send(std::as_bytes(std::span(&request, 1))); !sent) return sent;
  return receive_answer();
}

Result<void> RemoteServerConnection::write(const std::string& id, uint64_t offset, std::span<const std::byte> bytes) {
  Request request = request_for(Op::kWrite, id);
  request.offset = offset;
  request.length = bytes.size();
  if (Result<void> sent = send(std::as_bytes(std::span(&request, 1))); !sent) return sent;
  if (Result<void> sent = send(bytes); !sent) return sent;
  return receive_answer();
}

Result<void> RemoteServerConnection::read(const std::string& id, uint64_t offset, std::span<std::byte> bytes) {
  Request request = request_for(Op::kRead, id);
  request.offset = offset;
  request.length = bytes.size();
  if (Result<void> sent = send(std::as_bytes(std::span(&request, 1))); !sent) return sent;
  if (Result<void> answered = receive_answer(); !answered) return answered;
  return receive(bytes);
}

Error RemoteServerConnection::lost(int error_number) const {
  const bool is_late = error_number == EAGAIN || error_number == EWOULDBLOCK;
  return Error(fmt::format("the connection to the launcher at {} is lost: {}", name_,
                           error_number == 0 ? "it was closed there"
                           : is_late         ? fmt::format("no bytes for {} s", kRemoteTime.tv_sec)
                                             : base::errno_text(error_number)));
}

Result<void> RemoteServerConnection::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return lost(errno);
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return {};
}

Result<void> RemoteServerConnection::receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return lost(size < 0 ? errno : 0);
    bytes = bytes.subspan(static_cast<size_t>(size));
  }
  return {};
}

Result<void> RemoteServerConnection::receive_answer() {
  Reply reply;
  if (Result<void> received = receive(std::as_writable_bytes(std::span(&reply, 1))); !received) return received;
  if (reply.magic != kMagic) return Error(fmt::format("the launcher at {} is of another release of Cohort", name_));
  if (!reply.is_ok) return refused(reply);
  return {};
}

}  // namespace cohort::snapshot
