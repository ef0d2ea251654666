/// Finds the address at which a job's TCPStore answers, or says why none does.
///
/// c10d's own client retries silently and then blocks for ever on a server that is not a TCPStore. This tries every address of
/// the host until the timeout, and a server must prove with c10d's greeting (see TCPStoreBackend.hpp) that it is a store.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/base/net/address.h"

namespace cohort::job {

struct StoreSearch {
  std::string host;
  uint16_t port = 0;
  base::IpFamily family = base::IpFamily::kAny;
  std::chrono::milliseconds timeout;
  /// The process that asks, for the text: "rank 1 of 2".
  std::string who;
  /// The source of host and port, for the hint: "MASTER_ADDR and MASTER_PORT".
  std::string source;
};

/// Returns the numeric address at which a c10d store answers. Blocks until one does. The error names each address with its
/// family, what happened there, the number of attempts and the time. It comes after the timeout, or earlier if another kind of
/// server answers (after 15 s if it stays silent, 5 s if it only closes connections).
base::Result<std::string> find_store(const StoreSearch& search);

}  // namespace cohort::job
