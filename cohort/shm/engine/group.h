/// Group: the ranks of one host that communicate through shared memory. They are processes or threads, each with its own Group.
///
/// All ranks map one memfd with mailboxes, staging slots, channels, and a record of each rank's operations. Operations run in the
/// calling thread, in rounds: a rank writes to its slot, increases its counter, waits for the others' counters, and reads their
/// slots. Nothing has a name in a file system; when the last process ends, the kernel frees everything.
///
/// Results are bitwise equal on every rank, in every run and for every division of a message: sums are in the order of ranks.
///
/// The mailbox of every round has the rank's call (operation, dtype, reduction, root, count). If ranks make different calls, all
/// of them fail in that call, with a table of who called what; a rank that has not waited for all others in it fails in one of
/// the next calls. After a failure the group refuses further operations with the first cause.
///
/// **Collective** functions must be called by every rank, in the same order. They **block** until this rank's part is done. A
/// rank that only sends up to 2 KiB in total (the root of broadcast and scatter, the other ranks in reduce and gather) does not
/// wait for the receivers, unless it is eight calls ahead of them.
/// Thread-safety: one thread at a time, unless a function says otherwise. Semantics follow
/// torch/csrc/distributed/c10d/Backend.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/shm/memory/common_memory.h"
#include "cohort/shm/terms/call_options.h"
#include "cohort/shm/terms/failure.h"
#include "cohort/shm/terms/purpose_texts.h"

namespace cohort::shm {

class Exchange;
class Trace;

struct GroupOptions {
  /// The name for messages, "default_pg".
  std::string name;
  /// The address at which the ranks meet: new_address() of one of them, the same on all.
  std::string address;
  int rank = 0;
  int world_size = 1;
  /// The timeout of join(), and of every operation that has no timeout of its own.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// A quarter of each rank's staging memory, a multiple of 4 KiB. Only tests set it; it must be the same on all ranks.
  size_t slot_bytes = size_t{512} << 10;
  /// The process ids of the ranks if they are known in advance, so that join() need not wait for a rank that has ended.
  std::vector<int> pids = {};
  /// c10d's name of the group, "0", for dumps of the flight recorder. If empty, `name` is used.
  std::string trace_name = {};
  /// The global ranks, for texts and dumps. If empty, the ranks in the group are used.
  std::vector<int> global_ranks = {};
  PurposeTexts purposes = {};
  /// As CallOptions::find_obstacle, for join().
  const std::function<std::string()>* find_obstacle = nullptr;
  /// Set by join() if it fails because a rank has ended: any other engine would wait for that rank, too.
  bool* has_lost_a_rank = nullptr;
};

/// Returns a name that nobody can guess.
std::string new_address();

/// Returns a text that is equal on ranks that can share memory: one kernel, user, network and process namespace, and one
/// COHORT_HOST_ID.
std::string host_scope();

class Group {
 public:
  /// Joins the group. Collective. Blocks until all ranks have arrived or the timeout is over.
  static base::Result<std::unique_ptr<Group>> join(const GroupOptions& options);
  /// Leaves the group. Not collective: ranks that still wait for this one get an error. Requires that no thread is in an
  /// operation. Does nothing in a forked child.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;
  int world_size() const;
  const std::string& name() const;

  /// The collectives. `in` may be `out`. Counts are per rank, as in MPI. Lists have one pointer per rank.
  Outcome barrier(const CallOptions& options = {});
  Outcome all_reduce(const void* in, void* out, Elements elements, Reduction reduction,
                     const CallOptions& options = {});
  Outcome broadcast(void* data, Elements elements, int root, const CallOptions& options = {});
  /// Only the root's `out` is written; it may be null on other ranks.
  Outcome reduce(const void* in, void* out, Elements elements, Reduction reduction, int root,
                 const CallOptions& options = {});
  Outcome all_gather(const void* in, void* const* outs, Elements elements, const CallOptions& options = {});
  /// `outs` may be null on ranks other than the root.
  Outcome gather(const void* in, void* const* outs, Elements elements, int root, const CallOptions& options = {});
  /// `ins` may be null on ranks other than the root.
  Outcome scatter(const void* const* ins, void* out, Elements elements, int root, const CallOptions& options = {});
  Outcome reduce_scatter(const void* const* ins, void* out, Elements elements, Reduction reduction,
                         const CallOptions& options = {});
  /// Counts may differ between pairs. The number that this rank sends to rank r must be the number that r expects from it;
  /// otherwise both ranks of the pair fail with kMismatch.
  Outcome all_to_all(const void* const* ins, const size_t* in_counts, void* const* outs, const size_t* out_counts,
                     DType dtype, const CallOptions& options = {});

  /// Allocates memory that every rank can reach: operations whose tensors are all in it need no staging copies. Collective: the
  /// same `num_bytes` on all ranks. `memory` is this rank's part, zeroed, aligned to 4 KiB, and valid until release().
  Outcome allocate(size_t num_bytes, void** memory, const CallOptions& options = {});
  /// Frees memory of allocate(). Any thread, not collective. May be called after the group was destroyed, because the memory
  /// outlives it.
  static void release(void* memory);
  /// Allocates memory that all ranks share, zeroed. Collective: the same arguments on all ranks. `has_pages` allocates its pages
  /// now, so that a lack of memory is an error here. It is freed when the last process has released it. Forked children do not
  /// have it.
  Outcome allocate_common(size_t num_bytes, bool has_pages, CommonMemory* memory, const CallOptions& options = {});
  /// The bytes of allocate()d memory that this process holds, only its own parts. Any thread.
  static size_t num_allocated_bytes();
  /// Whether operations find tensors in the ranks' arenas (arena/process_arena.h). Decided when the group was joined, and the
  /// same on all ranks. Any thread.
  bool has_arenas() const;
  /// Every rank's arena by rank, as this process maps it. Empty unless has_arenas(). Any thread.
  std::vector<SharedMemoryPtr> arenas() const;
  /// Sets the size up to which operations copy tensors even if they are in shared memory, because one round with copies is faster
  /// than two without. For tests; the default is 16 KiB. Must be the same on all ranks.
  static void set_staged_bytes(size_t num_bytes);

  /// For a thread that can do other work until the other ranks arrive. Not collective. Tells the other ranks that this rank is
  /// about to run its next operation; it must then run it soon. Returns true as soon as all ranks have said so or are in that
  /// operation, so that the operation would only wait for ranks that work on it. Returns false after `limit`.
  bool meet_soon(std::chrono::microseconds limit, const CallOptions& options = {});

  /// Whether all ranks have reached this rank's last collective, and have made the same calls. Must not be called while one runs.
  bool is_settled() const;
  /// Blocks until is_settled(). Not collective. A rank that leaves a group without it may be missed by ranks that still wait for
  /// others.
  Outcome settle(const CallOptions& options = {});

  /// The group's sends and receives.
  Exchange& exchange();
  /// The record of this rank's operations. Any thread.
  Trace& trace();

  /// Ends a running operation of this rank with kAborted, and refuses later ones. Any thread.
  void abort();
  /// The first failure; null if there is none. Any thread.
  Outcome failure() const;

  struct State;  ///< private to this folder

 private:
  explicit Group(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace cohort::shm
