/// Who a rank is as a process, and whether it still runs.
#pragma once

#include <string>
#include <vector>

#include "cohort/shm/segment/segment.h"

namespace cohort::shm {

PeerRecord this_process();

/// True once the process has ended (a zombie has) or its pid belongs to another process. A few microseconds.
bool is_gone(const PeerRecord& peer);
/// "pid 4711 on node-a"
std::string describe(const PeerRecord& peer);
/// "has ended", or "was killed by signal 9 (SIGKILL)" where the system still tells.
std::string how_it_ended(const PeerRecord& peer);

/// True if every rank has a core to itself: by the ranks' affinities together and the smallest cgroup quota.
bool have_cores_of_their_own(const std::vector<PeerRecord>& ranks);

}  // namespace cohort::shm
