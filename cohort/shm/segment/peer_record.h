/// Describes the process of a rank, and tells whether it still runs.
#pragma once

#include <string>
#include <vector>

#include "cohort/shm/segment/segment.h"

namespace cohort::shm {

PeerRecord this_process();

/// Whether the process has ended (zombies have ended) or its pid belongs to another process. Takes a few microseconds.
bool is_gone(const PeerRecord& peer);
/// Returns "pid 4711 on node-a".
std::string describe(const PeerRecord& peer);
/// Returns "has ended", or "was killed by signal 9 (SIGKILL)" if the system still knows it.
std::string how_it_ended(const PeerRecord& peer);

/// Whether every rank has a core to itself, given the ranks' affinities together and the smallest cgroup quota.
bool have_cores_of_their_own(const std::vector<PeerRecord>& ranks);

}  // namespace cohort::shm
