/// A free TCP port that stays ours until the server that needs it has started.
///
/// A port that is picked and closed again can be taken by anyone before it is used. Here a socket stays bound to it,
/// without listening: the kernel then gives the port to nobody who asks for "any", while a server that names it and
/// sets SO_REUSEADDR (as c10d's TCPStore does) can bind and listen beside us.
#pragma once

#include "cohort/base/file.h"
#include "cohort/base/result.h"

namespace cohort::base {

/// Holds the port until it is destroyed. Keep it for as long as the server lives.
struct PortReservation {
  Fd socket;
  int port = 0;
};

Result<PortReservation> reserve_port();

}  // namespace cohort::base
