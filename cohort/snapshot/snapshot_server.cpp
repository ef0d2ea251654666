#include "cohort/snapshot/snapshot_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

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

constexpr int kPollMilliseconds = 1000;

}  // namespace

SnapshotServer::SnapshotServer(std::string token, store::KeyPair keys)
    : token_(std::move(token)), keys_(std::move(keys)), ticket_(store::random_nonce()) {}

Result<std::unique_ptr<SnapshotServer>> SnapshotServer::start(const std::string& token) {
  Result<store::KeyPair> keys = store::KeyPair::create();
  if (!keys) return keys.error();
  std::unique_ptr<SnapshotServer> server(new SnapshotServer(token, std::move(*keys)));
  server->name_ = "cohort-snapshots-" + in_hex(store::random_nonce().substr(0, 16));
  server->wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  server->listener_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const shm::UnixAddress address(server->name_);
  if (!server->wake_ || !server->listener_ || ::bind(server->listener_.get(), address.get(), address.length()) != 0 ||
      ::listen(server->listener_.get(), 128) != 0) {
    return Error(fmt::format("cannot open a UNIX socket for the workers' snapshots: {}", base::errno_text(errno)));
  }
  try {
    server->thread_ = std::thread([raw = server.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return Error(fmt::format("cannot start a thread for the workers' snapshots: {}", error.what()));
  }
  return server;
}

SnapshotServer::~SnapshotServer() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

std::string SnapshotServer::public_key() const { return in_hex(keys_.public_key()); }

Result<void> SnapshotServer::serve_nodes(const std::string& address, const std::vector<std::string>& public_keys) {
  const std::lock_guard lock(mutex_);
  public_keys_.clear();
  for (const std::string& key : public_keys) public_keys_.push_back(from_hex(key).value_or(""));
  if (address == address_) return {};
  Result<std::vector<store::Listener>> listeners = store::listen_on(address, 0);
  if (!listeners) return listeners.error();
  listeners_.clear();
  for (store::Listener& listener : *listeners) listeners_.push_back(std::move(listener.socket));
  port_ = listeners->front().port;
  address_ = address;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  return {};
}

std::string SnapshotServer::where() {
  const std::lock_guard lock(mutex_);
  return address_.empty() ? "" : fmt::format("{} {} {}", address_, port_, in_hex(ticket_));
}

std::string SnapshotServer::key_with(uint32_t node, std::string_view ticket) {
  std::string public_key;
  {
    const std::lock_guard lock(mutex_);
    if (node < public_keys_.size()) public_key = public_keys_[node];
  }
  const Result<std::string> secret = keys_.secret_with(public_key);
  return secret ? shared_key(token_, *secret, ticket) : "";
}

void SnapshotServer::run() {
  for (;;) {
    std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Fd& connection : local_) entries.push_back({connection.get(), POLLIN, 0});
    for (const auto& connection : remote_) entries.push_back({connection->socket(), connection->events(), 0});
    std::vector<int> listeners;
    {
      const std::lock_guard lock(mutex_);
      if (is_over_) return;
      for (const Fd& listener : listeners_) listeners.push_back(listener.get());
    }
    for (const int listener : listeners) entries.push_back({listener, POLLIN, 0});
    if (::poll(entries.data(), entries.size(), kPollMilliseconds) < 0 && errno != EINTR) return;
    uint64_t count = 0;
    if (entries[0].revents) (void)!::read(wake_.get(), &count, sizeof(count));
    const auto* entry = entries.data() + 2;
    // Descriptors of a closed listener may have been reused, so only those that poll has named are used.
    std::erase_if(local_, [&](const Fd& connection) { return (entry++)->revents != 0 && !serve_local(connection); });
    const auto now = RemoteClient::Clock::now();
    std::erase_if(remote_, [&](const auto& connection) {
      const bool is_ready = (entry++)->revents != 0;
      return (is_ready && !connection->advance(files_)) || connection->is_too_late(now);
    });
    if (entries[1].revents) accept_local();
    for (const int listener : listeners) {
      if ((entry++)->revents) accept_remote(listener);
    }
  }
}

void SnapshotServer::accept_local() {
  Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection || !shm::own_users_process(connection)) return;
  if (local_.size() < kMostConnections) local_.push_back(std::move(connection));
}

void SnapshotServer::accept_remote(int listener) {
  Fd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection) return;
  const int yes = 1;
  ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (remote_.size() >= kMostConnections) {
    const auto stranger =
        std::find_if(remote_.begin(), remote_.end(), [](const auto& each) { return !each->is_trusted(); });
    if (stranger == remote_.end()) return;
    remote_.erase(stranger);
  }
  remote_.push_back(
      std::make_unique<RemoteClient>(std::move(connection), [this](uint32_t node) { return key_with(node, ticket_); }));
}

bool SnapshotServer::serve_local(const Fd& connection) {
  Request request;
  const std::span<char> bytes(reinterpret_cast<char*>(&request), sizeof(request));
  shm::MessageWithFd message = shm::receive_with_fd(connection, bytes, MSG_DONTWAIT);
  if (message.num_bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (message.num_bytes != sizeof(request) || message.is_cut || request.magic != kMagic) return false;
  const Fd* given = nullptr;
  const Reply reply = answer(request, std::move(message.fd), &given);
  const std::span<const char> answer_bytes(reinterpret_cast<const char*>(&reply), sizeof(reply));
  return shm::send_with_fd(connection, answer_bytes, given, MSG_DONTWAIT) == sizeof(reply);
}

Reply SnapshotServer::answer(const Request& request, Fd received, const Fd** given) {
  const std::string id = id_in(request.id);
  switch (request.op) {
    case Op::kWhere:
      return ok_reply(where());
    case Op::kTake:
      return answer_take(request, given);
    case Op::kProve:
      return answer_prove(request);
    case Op::kPut: {
      if (id.empty()) return failed_reply("the file has no name");
      const Result<void> put = files_.put(id, std::move(received));
      return put ? ok_reply() : failed_reply(put.error().describe());
    }
    case Op::kDrop:
      files_.drop(id);
      return ok_reply();
    default:
      return failed_reply("the launcher does not know this request: it is of another release of Cohort");
  }
}

Reply SnapshotServer::answer_take(const Request& request, const Fd** given) {
  if (request.index >= files_.files().size()) return ok_reply();
  const auto& [id, file] = *std::next(files_.files().begin(), request.index);
  Reply reply = ok_reply();
  reply.size = file.size;
  set_id(reply.id, id);
  *given = &file.fd;
  return reply;
}

Reply SnapshotServer::answer_prove(const Request& request) {
  const std::string_view nonces(request.nonces, sizeof(request.nonces));
  const std::string_view server = nonces.substr(0, kSecretBytes);
  const std::string_view client = nonces.substr(kSecretBytes);
  const std::string key = key_with(request.index, {request.ticket, sizeof(request.ticket)});
  if (key.empty())
    return failed_reply(fmt::format("the launcher of node {} takes no part in snapshots", request.index));
  return ok_reply(store::proof_of(store::Side::kClient, key, server, client) +
                  store::proof_of(store::Side::kServer, key, server, client));
}

}  // namespace cohort::snapshot
