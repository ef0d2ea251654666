/// TCP ports: reserves a free port until the server that needs it has started, and finds the process that uses a port.
///
/// If a port is picked and its socket closed again, anyone can take it before it is used. So a socket stays bound to it, without
/// listening: the kernel then gives the port to no process that asks for any free port, but a server that names it and sets
/// SO_REUSEADDR (as c10d's TCPStore does) can bind and listen beside that socket.
#pragma once

#include <optional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::base {

/// Holds the port until it is destroyed. Keep it for as long as the server lives.
struct PortReservation {
  Fd socket;
  int port = 0;
};

Result<PortReservation> reserve_port();

/// Returns the port of the socket's own end.
int bound_port(int socket);

struct PortHolder {
  int pid = 0;
  std::string command;  ///< the command line, at most 200 characters
};

struct PortUse {
  bool is_listened_on = false;
  /// The process that listens. Absent if the system hides it (another user's process, another pid namespace).
  std::optional<PortHolder> holder;
};

/// Looks up in /proc which process listens on TCP port `port`, on any address of this network namespace.
PortUse look_up_port(int port);

/// Returns the inode of a socket that listens on `port`, from the text of /proc/net/tcp or tcp6; nullopt without one. Pure.
std::optional<unsigned long> listening_inode(const std::string& table, int port);

}  // namespace cohort::base
