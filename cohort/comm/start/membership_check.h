/// The membership check at the start of a job: waits until every rank has come, and ends early, with a reason, if that cannot be.
///
/// A C++ rank has come when its entry is in the store, a Python rank when Gloo has written its key there (gloo_key.h).
/// The check waits for nothing else from a Python rank.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/start/rendezvous_url.h"
#include "cohort/job/arrival.h"
#include "cohort/job/failure.h"

namespace c10d {
class Store;
}

namespace cohort::comm {

class Peers;

struct MembershipCheck {
  /// The default group's store, with the entries "cohort/start/<rank>" and Gloo's keys.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout;
  /// The ranks' meeting place, for texts. Absent for a store that the user gave.
  std::optional<RendezvousPlan> plan;
  /// Whether this process has met the others there before: then the store may be one that rank 0 has not ended yet.
  bool is_met_again = false;
  /// Distinguishes this rank's accelerator from others on its host, such as "GPU-<uuid>". Empty without an accelerator.
  std::string accelerator = {};
  /// If false, no rank will listen on the network.
  bool uses_gloo = true;
  /// Whether every rank writes an entry. Then Gloo's keys, which this process may have written itself, are ignored.
  bool is_among_own_kind = false;
  /// Whether all ranks must be able to share memory because the group uses the backend "shm". `group`: its name, for texts.
  bool needs_shared_memory = false;
  std::string group = {};
};

/// The store has ended, but rank 0 seems to be there: it was the previous group's store, and the next one is to come.
struct EarlierStoreEnded : std::exception {};

/// Writes this process's entry and blocks until every rank has come. Returns: all ranks in order, the same on all of them.
/// Throws c10::ValueError for what can never work: two processes with one rank, world sizes that differ, one accelerator
/// for two ranks, ranks that cannot share memory but must, addresses that cannot reach each other, an interface that does not
/// exist; c10::DistStoreError if ranks do not come within the timeout, if the store stops answering (3 s after the
/// timeout), if a rank that came has ended, and for a file left over from another run. The first rank that sees an error
/// tells all others, so that they end with the same text. Throws EarlierStoreEnded if `check.is_met_again` allows it.
COHORT_TEST_API std::vector<job::Arrival> check_membership(const MembershipCheck& check);

/// For a rank 0 whose port is taken by a store: if a rank 0 has already entered the job in `store`, tells its waiting ranks
/// and returns why this process cannot start. Blocks for at most a second.
std::optional<base::Failure> refuse_second_host(const c10::intrusive_ptr<c10d::Store>& store);

/// Removes what check_membership wrote, for a start that failed later. Never throws.
void withdraw_membership(const c10::intrusive_ptr<c10d::Store>& store, int rank);

}  // namespace cohort::comm
