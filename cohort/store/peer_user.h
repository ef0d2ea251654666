/// Whose process is at the other end of a TCP connection within this host, of which SO_PEERCRED says nothing. Private to this
/// folder.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "cohort/base/result.h"
#include "cohort/store/socket.h"

namespace cohort::store {

/// Whether a server refuses other users' processes: it does where all `listeners` have loopback addresses, unless
/// COHORT_STORE_ANY_USER is set. Warns where the kernel does not tell who owns a socket. Error: the variable cannot be read.
base::Result<bool> is_for_own_user(const std::vector<Listener>& listeners);

/// The user whose process holds the other end. Nothing if that end is closed or is not in this network namespace: a closed
/// socket is nobody's any more, and the kernel would say that it is root's.
std::optional<uid_t> user_of_peer(int socket);

/// This process's own user, or root, who may do everything anyway.
bool is_own_user(uid_t user);

}  // namespace cohort::store
