/// TCP sockets: listens on the addresses of a host, and connects to a host within a deadline.
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

/// Opens non-blocking sockets, one per address of `host`. An empty host means all interfaces, of both families if the machine has
/// both. Port 0 means a free one, the same for all. Errors name host and port, and the process that has a port that is in use.
base::Result<std::vector<Listener>> listen_on(const std::string& host, int port,
                                              base::IpFamily family = base::IpFamily::kAny);

/// Opens a blocking socket with TCP_NODELAY and keep-alive. Tries all addresses of `host` repeatedly until `timeout`, because the
/// server may start later. The error describes the last attempt.
base::Result<base::Fd> connect_to(const std::string& host, int port, std::chrono::milliseconds timeout,
                                  base::IpFamily family = base::IpFamily::kAny);

/// The result of one attempt to connect to one address: such a socket, or the errno; ETIMEDOUT at the deadline.
struct Attempt {
  base::Fd socket;
  int error = 0;
};
Attempt connect_once(const addrinfo& address, std::chrono::steady_clock::time_point deadline);

/// Calls poll() until the deadline, however far away that is, and ignores signals. Returns 0 at the deadline, -1 with errno.
int poll_until(std::span<pollfd> fds, std::chrono::steady_clock::time_point deadline);
/// Waits for poll's `events` on `socket`. Returns false at the deadline.
bool wait_for(int socket, short events, std::chrono::steady_clock::time_point deadline);

/// Prepares a server's end of a connection: sends without delay, and notices after two minutes that a host has gone.
void watch_peer(int socket);

/// Returns "127.0.0.1:29500" or "[::1]:29500", the address of the other end; "?" if there is none.
std::string peer_name(int socket);

}  // namespace cohort::store
