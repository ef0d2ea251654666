/// Peers: the processes and hosts of a job's ranks, published through the store, so that a failure can name a rank that is gone.
///
/// Python ranks publish nothing, so only await() waits for a key.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/system/process_state.h"
#include "cohort/job/arrival.h"
#include "cohort/job/peer.h"

namespace c10d {
class Store;
}

namespace cohort::comm {

/// The processes of a job. Thread-safety: any thread may query; one thread at a time may call learn, collect and await.
class Peers {
 public:
  Peers(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size);

  /// Writes this process's entry; check_membership (membership_check.h) writes it with more checks.
  void publish();
  /// Takes the results of check_membership.
  void learn(const std::vector<job::Arrival>& arrivals);
  /// Reads the entries of the other ranks. Call it once all of them are known to have passed publish().
  void collect();
  /// Reads the entries of these ranks, and waits up to 10 s for missing ones. Waits once, and not for ranks for which learn() had
  /// no entry.
  void await(const std::vector<int>& ranks);

  /// Whether the rank published itself; Python ranks do not.
  bool knows(int rank) const { return find(rank).has_value(); }
  /// Whether the rank's process is known, was on this host, and is gone. Never waits.
  bool is_gone(int rank) const;
  std::vector<int> gone_ranks() const;
  /// Whether the rank is a process of this host that a signal has stopped. Never waits.
  bool is_stopped(int rank) const;
  /// Returns what the rank's process does; absent if it is not a process of this host. Takes 50 ms.
  std::optional<base::ProcessActivity> activity(int rank) const;
  /// Returns "rank 1 (pid 4711 on node-a)".
  std::string describe(int rank) const;
  /// Returns the number of ranks on this host, including this one; ranks that published nothing are not counted.
  int ranks_on_this_host() const;
  /// Returns the rank's entry; for a rank that published nothing, only its number.
  job::Arrival arrival(int rank) const;
  /// Returns how often these ranks have created a default group with this store.
  int start_count() const { return self_.start_count; }
  bool knows_all() const;

 private:
  std::string key(const char* kind, int rank) const;
  std::optional<job::Peer> find(int rank) const;
  std::map<int, job::Peer> all() const;
  void put(int rank, const job::Peer& peer);
  bool is_local(const job::Peer& peer) const { return peer.pid_scope == self_.pid_scope; }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int world_size_;
  job::Peer self_;
  std::set<int> silent_;  ///< ranks that have written nothing in time
  mutable std::mutex mutex_;
  std::map<int, job::Peer> peers_;  ///< guarded by mutex_
};

}  // namespace cohort::comm
