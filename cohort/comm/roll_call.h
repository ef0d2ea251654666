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

#include "cohort/comm/rendezvous_url.h"
#include "cohort/export.h"

namespace c10d {
class Store;
}

namespace cohort::comm {

struct RollCall {
  /// The default group's, where the entries "cohort/start/<rank>" and Gloo's keys are.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout;
  /// Where the ranks meet, for texts; nothing for a store given by the user.
  std::optional<RendezvousPlan> plan;
  /// What tells this rank's accelerator from others on its host, such as "GPU-<uuid>"; empty: none.
  std::string accelerator = {};
};

/// Writes this process's entry and blocks until every rank has come.
/// Throws c10::ValueError for what can never work: two processes with one rank, world sizes that differ, one accelerator
/// for two ranks, addresses that cannot reach each other, an interface that is not there; c10::DistStoreError when ranks do
/// not come within the time-out, when one that came has ended, and for a file left over from another run. The first rank
/// that sees an error tells all others, so that they end with the same text.
COHORT_API void call_roll(const RollCall& call);

/// For a rank 0 that finds its port taken by a store: if a rank 0 has entered the job in `store`, tells its waiting ranks
/// and returns the text of the error, else "". Blocks for at most a second.
std::string refuse_second_host(const c10::intrusive_ptr<c10d::Store>& store);

/// Takes back what call_roll wrote; for a start that failed later. Never throws.
COHORT_API void leave_roll(const c10::intrusive_ptr<c10d::Store>& store, int rank);

/// The text for a group whose connecting failed with `engine_text`: names the members that never came to it.
/// `store` is the group's; `ranks` its members by default-group rank. `option` is what raises the time-out.
COHORT_API std::string explain_failed_connect(const c10::intrusive_ptr<c10d::Store>& store, const std::string& group,
                                              const std::vector<int>& ranks, const std::string& option,
                                              const std::string& engine_text);

}  // namespace cohort::comm
