#include "tests/store/lossy_relay.h"

#include <poll.h>
#include <sys/socket.h>

#include "cohort/base/text/text.h"
#include "tests/store/times.h"

namespace cohort::store {
namespace {

std::string receive_some(int socket) {
  std::string bytes(64 * 1024, '\0');
  const auto size = recv(socket, bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return bytes;
}

// One message of HTTP with a Content-Length, or in one chunk that ends with the message.
std::string receive_message(int socket) {
  std::string bytes;
  while (true) {
    auto more = receive_some(socket);
    if (more.empty()) return bytes;
    bytes += more;
    const auto body = bytes.find("\r\n\r\n");
    if (body == std::string::npos) continue;
    const auto length = bytes.find("Content-Length: ");
    if (length == std::string::npos || length > body) return bytes;
    if (bytes.size() - body - 4 >= std::stoul(bytes.substr(length + 16))) return bytes;
  }
}

}  // namespace

LossyRelay::LossyRelay(int port, int period)
    : listener_(std::move(listen_on("127.0.0.1", 0).value().front())),
      target_(port),
      period_(period),
      thread_([this] { run(); }) {}

LossyRelay::LossyRelay(std::string answer)
    : listener_(std::move(listen_on("127.0.0.1", 0).value().front())),
      answer_(std::move(answer)),
      thread_([this] { run(); }) {}

LossyRelay::~LossyRelay() {
  is_ending_ = true;
  thread_.join();
}

void LossyRelay::run() {
  while (!is_ending_) {
    pollfd poll_fd{listener_.socket.get(), POLLIN, 0};
    if (poll(&poll_fd, 1, 10) != 1) continue;
    const base::Fd client(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client) serve(client.get());
  }
}

void LossyRelay::serve(int client) {
  const auto request = receive_message(client);
  if (target_ == 0) {
    send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    return;
  }
  const auto server = connect_to("127.0.0.1", target_, kHangLimit);
  if (!server || request.empty()) return;
  send(server->get(), request.data(), request.size(), MSG_NOSIGNAL);
  const auto answer = receive_message(server->get());
  if (++num_served_ % period_ == 0) {
    ++num_lost_;
    return;
  }
  send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
}

}  // namespace cohort::store
