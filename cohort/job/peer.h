/// One process of a job, as it introduces itself to the others through the store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::job {

struct Peer {
  int pid = 0;
  std::string host;
  /// Same text on two ranks: their process ids mean the same (one kernel, one pid namespace).
  std::string pid_scope;
  /// Start time of the process in clock ticks, so that a reused pid is not mistaken for the rank.
  std::string started_at;
  /// Same text on two ranks: their loopback interface is the same (one kernel, one network namespace).
  std::string network_scope;
  int world_size = 0;
  /// Where Gloo will listen; empty without Gloo.
  std::vector<std::string> addresses;
  /// Interfaces to choose from, in words; given only where an address is a loopback one.
  std::string interfaces;
  /// What tells the accelerator of this rank from others, such as "GPU-<uuid>"; empty: none.
  std::string accelerator;
  /// Same text on two ranks: they can share memory (cohort/shm); empty: this one cannot, and `shm_obstacle` says why.
  std::string shm_scope;
  std::string shm_obstacle;
  /// How often the process has created a default group, this time included.
  int start_count = 0;
};

/// This process; world_size and what follows it are left to the caller.
Peer this_process();
/// Lines of "name value"; decode skips names it does not know, so that releases can be mixed.
std::string encode(const Peer& peer);
Peer decode_peer(const std::vector<uint8_t>& bytes);

/// Same process, even if one of the two was described earlier.
bool is_same_process(const Peer& a, const Peer& b);
/// True when the process is seen to have ended; false while it runs and when it cannot be seen from here.
bool is_seen_gone(const Peer& peer);
/// "pid 4711 on node-a"
std::string describe_process(const Peer& peer);

}  // namespace cohort::job
