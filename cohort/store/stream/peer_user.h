/// Finds the user whose process has the other end of a TCP connection within this host; SO_PEERCRED does not know it. Private to
/// this folder.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/store/stream/socket.h"

namespace cohort::store {

/// Opens the descriptor for user_of_peer(). A server keeps it, because none may be left later. A server refuses other users'
/// processes if all `listeners` have loopback addresses and COHORT_STORE_ANY_USER is not set; otherwise the descriptor is empty.
/// Warns if the kernel does not tell who owns a socket. Returns an error if the variable is malformed.
base::Result<base::Fd> open_user_query(const std::vector<Listener>& listeners);

/// Returns the user whose process has the other end; nothing if that end is closed or in another network namespace. (Nobody owns
/// a closed socket, and the kernel would say that root does.) Thread-safety: one thread at a time per `query`.
std::optional<uid_t> user_of_peer(const base::Fd& query, int socket);

/// Whether `user` is this process's user, or root, who may do everything anyway.
bool is_own_user(uid_t user);

}  // namespace cohort::store
