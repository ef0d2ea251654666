/// TCP ports: a free one that stays ours until the server that needs it has started, and who holds one that is taken.
///
/// A port that is picked and closed again can be taken by anyone before it is used. Here a socket stays bound to it,
/// without listening: the kernel then gives the port to nobody who asks for "any", while a server that names it and
/// sets SO_REUSEADDR (as c10d's TCPStore does) can bind and listen beside us.
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

/// Of the socket's own end.
int bound_port(int socket);

struct PortHolder {
  int pid = 0;
  std::string command;  ///< the command line, at most 200 characters
};

struct PortUse {
  bool is_listened_on = false;
  /// Who listens; nothing when the system hides it (another user's process, another pid namespace).
  std::optional<PortHolder> holder;
};

/// Who listens on TCP port `port` of any address of this network namespace, from /proc.
PortUse look_up_port(int port);

/// Inode of a socket that listens on `port`, from the text of /proc/net/tcp or tcp6; nothing if there is none. Pure.
std::optional<unsigned long> listening_inode(const std::string& table, int port);

}  // namespace cohort::base
