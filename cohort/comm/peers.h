/// Who the ranks of a job are (process, host), published through the store, so that a failure can name the one that is gone.
///
/// Python ranks publish nothing, so nothing here ever waits for a key.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/peer.h"

namespace c10d {
class Store;
}

namespace cohort::comm {

/// The processes of a job. Thread-safety: const after construction, besides publish_failure.
class Peers {
 public:
  Peers(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size);

  /// Writes this process's entry; call_roll (roll_call.h) writes it with more checks.
  void publish();
  /// Reads what the others have written; call once all of them are known to have passed publish().
  void collect();

  /// Tells the others that this rank has noticed a failure, so that it is not taken for its cause.
  void publish_failure();
  /// For rank 0, whose process usually hosts the store: blocks until every other rank has published a failure or is gone,
  /// at most `limit`, so that they can still read who failed first. No effect on other ranks.
  void wait_until_others_know(std::chrono::milliseconds limit) const;
  /// Ranks whose process is gone, on this host: those that died first where that can be told. At most a few milliseconds.
  std::vector<int> lost_ranks() const;
  /// "rank 1 (pid 4711 on node-a)"
  std::string describe(int rank) const;
  /// Ranks on this host, this one included; ranks that published nothing are not counted.
  int ranks_on_this_host() const;
  bool knows_all() const { return static_cast<int>(peers_.size()) == world_size_; }

 private:
  std::string key(const char* kind, int rank) const;
  bool knows_of_failure(int rank) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int world_size_;
  Peer self_;
  std::map<int, Peer> peers_;
};

}  // namespace cohort::comm
