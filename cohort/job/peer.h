/// One process of a job, as it describes itself to the others through the store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::job {

struct Peer {
  int pid = 0;
  std::string host;
  /// Equal on two ranks if their process ids mean the same (one kernel, one pid namespace).
  std::string pid_scope;
  /// The start time of the process in clock ticks, so that a reused pid is not mistaken for the rank.
  std::string started_at;
  /// Equal on two ranks if their loopback interface is the same (one kernel, one network namespace).
  std::string network_scope;
  int world_size = 0;
  /// The addresses on which Gloo will listen; empty without Gloo.
  std::vector<std::string> addresses;
  /// The interfaces to choose from, in words. Only given if one of the addresses is a loopback address.
  std::string interfaces;
  /// An id of this rank's accelerator, such as "GPU-<uuid>". Empty if it has none.
  std::string accelerator;
  /// Equal on two ranks if they can share memory (cohort/shm). Empty if this rank cannot; `shm_obstacle` then says why.
  std::string shm_scope;
  std::string shm_obstacle;
  /// The number of default groups that the process has created, including this one.
  int start_count = 0;
};

/// Describes this process. The caller sets world_size and the members after it.
Peer this_process();
/// Writes lines of "name value". decode ignores names that it does not know, so that releases can be mixed.
std::string encode(const Peer& peer);
Peer decode_peer(const std::vector<uint8_t>& bytes);

/// Whether both are the same process, even if one was described earlier.
bool is_same_process(const Peer& a, const Peer& b);
/// Whether the process is known to have ended. False while it runs, or if it cannot be seen from here.
bool is_seen_gone(const Peer& peer);
/// Returns "pid 4711 on node-a".
std::string describe_process(const Peer& peer);

}  // namespace cohort::job
