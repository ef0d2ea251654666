/// Whose process is at the other end of a TCP connection within this host, of which SO_PEERCRED says nothing. Private to this
/// folder.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/store/stream/socket.h"

namespace cohort::store {

/// What a server that refuses other users' processes asks; it keeps its descriptor, as there may be none left later. A server
/// refuses them where all `listeners` have loopback addresses, unless COHORT_STORE_ANY_USER is set: then there is none. Warns
/// where the kernel does not tell who owns a socket. Error: the variable cannot be read.
base::Result<base::Fd> open_user_query(const std::vector<Listener>& listeners);

/// The user whose process holds the other end. Nothing if that end is closed or is not in this network namespace: a closed
/// socket is nobody's any more, and the kernel would say that it is root's. Thread-safety: one thread at a time per `query`.
std::optional<uid_t> user_of_peer(const base::Fd& query, int socket);

/// This process's own user, or root, who may do everything anyway.
bool is_own_user(uid_t user);

}  // namespace cohort::store
