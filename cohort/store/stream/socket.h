/// TCP sockets: listening on the addresses of a host, connecting to a host until a deadline.
#pragma once

#include <poll.h>

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/base/net/address.h"

namespace cohort::store {

struct Listener {
  base::Fd socket;
  int port = 0;
};

/// Non-blocking sockets, one per address of `host`; an empty host: all interfaces, of both families where the machine has both.
/// port 0: a free one, the same for all. Errors name host and port, and who holds a taken port.
base::Result<std::vector<Listener>> listen_on(const std::string& host, int port,
                                              base::IpFamily family = base::IpFamily::kAny);

/// A blocking socket with TCP_NODELAY and keep-alive. Tries all addresses of `host`, again and again, until `timeout`: the server
/// may start later. The error tells what was tried last.
base::Result<base::Fd> connect_to(const std::string& host, int port, std::chrono::milliseconds timeout,
                                  base::IpFamily family = base::IpFamily::kAny);

/// What one attempt at one address came to: such a socket, or the errno; ETIMEDOUT at the deadline.
struct Attempt {
  base::Fd socket;
  int error = 0;
};
Attempt connect_once(const addrinfo& address, std::chrono::steady_clock::time_point deadline);

/// poll() until the deadline, however far it is, signals or not: 0 at the deadline, -1 with errno.
int poll_until(std::span<pollfd> fds, std::chrono::steady_clock::time_point deadline);
/// Whether poll's `events` come to `socket` until the deadline.
bool wait_for(int socket, short events, std::chrono::steady_clock::time_point deadline);

/// For a server's end: sends without delay, and notices after two minutes a host that has gone without a word.
void watch_peer(int socket);

/// "127.0.0.1:29500" or "[::1]:29500" of the other end; "?" where there is none.
std::string peer_name(int socket);

}  // namespace cohort::store
