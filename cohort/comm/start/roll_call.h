/// The start of a job: waits until every rank has come, and ends early with a reason when that can never be.
///
/// A C++ rank has come when its entry is in the store, a Python rank when Gloo has written its key there (gloo_key.h).
/// Nothing else is awaited from a Python rank.
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

struct RollCall {
  /// The default group's, where the entries "cohort/start/<rank>" and Gloo's keys are.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout;
  /// Where the ranks meet, for texts; nothing for a store given by the user.
  std::optional<RendezvousPlan> plan;
  /// This process has met the others there before: the store may be the one that rank 0 has not ended yet.
  bool is_met_again = false;
  /// What tells this rank's accelerator from others on its host, such as "GPU-<uuid>"; empty: none.
  std::string accelerator = {};
  /// False: nobody will listen on the network.
  bool uses_gloo = true;
  /// Every rank writes an entry; Gloo's keys, which this process may have written itself, mean nothing.
  bool is_among_own_kind = false;
  /// All ranks must be able to share memory: the group asks for the backend "shm". Its name is for texts.
  bool needs_shared_memory = false;
  std::string group = {};
};

/// The store has ended, and rank 0 seems to be there still: it was the store of the group before, and the next one is to come.
struct EarlierStoreEnded : std::exception {};

/// Writes this process's entry and blocks until every rank has come. Returns: all ranks in order, the same on all of them.
/// Throws c10::ValueError for what can never work: two processes with one rank, world sizes that differ, one accelerator
/// for two ranks, ranks that cannot share memory but must, addresses that cannot reach each other, an interface that is not
/// there; c10::DistStoreError when ranks do not come within the time-out, when the store stops answering (3 s after the
/// time-out), when a rank that came has ended, and for a file left over from another run. The first rank that sees an error
/// tells all others, so that they end with the same text. Throws EarlierStoreEnded, if the call allows for it.
COHORT_TEST_API std::vector<job::Arrival> call_roll(const RollCall& call);

/// For a rank 0 that finds its port taken by a store: if a rank 0 has entered the job in `store`, tells its waiting ranks
/// and returns why this process cannot start. Blocks for at most a second.
std::optional<base::Failure> refuse_second_host(const c10::intrusive_ptr<c10d::Store>& store);

/// Takes back what call_roll wrote; for a start that failed later. Never throws.
void leave_roll(const c10::intrusive_ptr<c10d::Store>& store, int rank);

}  // namespace cohort::comm
