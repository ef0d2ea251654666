/// Finds the address at which a job's TCPStore answers, and says why none does.
///
/// c10d's own client retries in silence and then blocks for ever on a server that is not a TCPStore. Here every address
/// of the host is tried until the time-out, and a server must prove by c10d's greeting (see TCPStoreBackend.hpp) what it is.
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
  /// Who asks, for the text: "rank 1 of 2".
  std::string who;
  /// Where host and port come from, for the hint: "MASTER_ADDR and MASTER_PORT".
  std::string source;
};

/// Returns: the numeric address at which a c10d store answers. Blocks until one does.
/// Error: names each address with its family, what happened there, attempts and time; after the time-out, or at once when
/// another kind of server answers (after 15 s when it stays silent, 5 s when it only closes connections).
base::Result<std::string> find_store(const StoreSearch& search);

}  // namespace cohort::job
