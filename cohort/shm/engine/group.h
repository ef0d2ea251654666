/// Group: the ranks of one host that talk through shared memory. Processes or threads, each with a Group of its own.
///
/// One memfd is mapped by all: mailboxes, staging slots, channels, and a record of what each rank does. Operations run in the
/// calling thread, in rounds: a rank writes to its slot, raises its counter, waits for the others' counters, reads their
/// slots. Nothing has a name in a file system; when the last process ends, the kernel frees everything.
///
/// Results are the same bits on every rank, in every run and however a message is cut: sums go in rank order.
///
/// Every round's mailbox carries what its rank calls (operation, dtype, reduction, root, count). Ranks that call different
/// things all fail in that call, with a table of who called what; who has not waited for all in it, in one of the next.
/// After a failure the group refuses further work with the first cause.
///
/// **Collective** functions must be called by every rank, in the same order. They **block** until this rank's part is done. A
/// rank that only gives up to 2 KiB in all (broadcast's and scatter's root, the others in reduce and gather) does not wait for
/// those that take it, unless it is eight calls ahead of them.
/// Thread-safety: one thread at a time, except where said. Follows torch/csrc/distributed/c10d/Backend.hpp in what they do.
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
  /// As people see it, "default_pg".
  std::string name;
  /// Where the ranks meet: new_address() of one of them, the same on all.
  std::string address;
  int rank = 0;
  int world_size = 1;
  /// For join() and for every operation that does not say otherwise.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Test-only knob, the same on all ranks: a quarter of each rank's staging memory. A multiple of 4 KiB.
  size_t slot_bytes = size_t{512} << 10;
  /// Process ids of the ranks where they are known beforehand, so that join() need not wait for one that is gone.
  std::vector<int> pids = {};
  /// For dumps of the flight recorder: c10d's name of the group, "0"; empty: `name`.
  std::string trace_name = {};
  /// The ranks' numbers in the job, which texts and dumps call them by; empty: those in the group.
  std::vector<int> global_ranks = {};
  PurposeTexts purposes = {};
  /// As CallOptions::find_obstacle, for join().
  const std::function<std::string()>* find_obstacle = nullptr;
  /// join() sets it where it fails because a rank has ended: any other engine would wait for that rank, too.
  bool* has_lost_a_rank = nullptr;
};

/// A name that nobody can guess.
std::string new_address();

/// Ranks with the same text can share memory: one kernel, user, network and process namespace, and one COHORT_HOST_ID.
std::string host_scope();

class Group {
 public:
  /// Collective. Blocks until all ranks have come or the time is over.
  static base::Result<std::unique_ptr<Group>> join(const GroupOptions& options);
  /// Not collective: ranks that still wait for this one get an error. Requires that no thread is in an operation. In a forked
  /// child it does nothing.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;
  int world_size() const;
  const std::string& name() const;

  /// The collectives. `in` may be `out`. Counts are per rank's part, as in MPI. Lists have one pointer per rank.
  Outcome barrier(const CallOptions& options = {});
  Outcome all_reduce(const void* in, void* out, Elements elements, Reduction reduction,
                     const CallOptions& options = {});
  Outcome broadcast(void* data, Elements elements, int root, const CallOptions& options = {});
  /// `out` is written on the root alone; it may be null elsewhere.
  Outcome reduce(const void* in, void* out, Elements elements, Reduction reduction, int root,
                 const CallOptions& options = {});
  Outcome all_gather(const void* in, void* const* outs, Elements elements, const CallOptions& options = {});
  /// `outs` may be null on other ranks than the root.
  Outcome gather(const void* in, void* const* outs, Elements elements, int root, const CallOptions& options = {});
  /// `ins` may be null on other ranks than the root.
  Outcome scatter(const void* const* ins, void* out, Elements elements, int root, const CallOptions& options = {});
  Outcome reduce_scatter(const void* const* ins, void* out, Elements elements, Reduction reduction,
                         const CallOptions& options = {});
  /// Counts may differ between pairs: what this rank sends to rank r must be what r expects from here, else every rank of
  /// the pair fails with kMismatch.
  Outcome all_to_all(const void* const* ins, const size_t* in_counts, void* const* outs, const size_t* out_counts,
                     DType dtype, const CallOptions& options = {});

  /// Memory that every rank can reach: operations whose tensors all lie in it need no staging copies. Collective: the same
  /// `num_bytes` everywhere. `memory` is this rank's part, zeroed, aligned to 4 KiB, and stays until release() of it.
  Outcome allocate(size_t num_bytes, void** memory, const CallOptions& options = {});
  /// Any thread, not collective. Also after the group has gone: the memory outlives it.
  static void release(void* memory);
  /// Memory that the ranks have once, zeroed. Collective: the same arguments everywhere. `has_pages`: its pages are made now, so
  /// that a lack of memory is an error here. It is freed when the last process has let go of it. Forked children do not have it.
  Outcome allocate_common(size_t num_bytes, bool has_pages, CommonMemory* memory, const CallOptions& options = {});
  /// Bytes of allocate()d memory that this process holds, its own parts alone. Any thread.
  static size_t num_allocated_bytes();
  /// Whether operations find tensors in the ranks' arenas (arena/process_arena.h). Settled when the group was joined, the same
  /// on all ranks. Any thread.
  bool has_arenas() const;
  /// Every rank's arena, by rank: as this process maps it. None unless has_arenas(). Any thread.
  std::vector<SharedMemoryPtr> arenas() const;
  /// Up to this many bytes operations copy tensors although they lie in shared memory, as one round with copies is faster than
  /// two without. For tests; the default is 16 KiB. All ranks alike.
  static void set_staged_bytes(size_t num_bytes);

  /// For a thread that has something else to do while others are not there. Not collective. Tells them that this rank is about
  /// to run its next operation, which it must do in any case, and soon; returns true as soon as all have said so or are in that
  /// operation, so that it would only wait for ranks at work on it; false after `limit`.
  bool meet_soon(std::chrono::microseconds limit, const CallOptions& options = {});

  /// Whether all ranks have come to this rank's last collective, and have made the same calls. Not while one runs.
  bool is_settled() const;
  /// Blocks until it is so. Not collective, but who leaves a group without it may be missed by ranks that still wait for others.
  Outcome settle(const CallOptions& options = {});

  /// Sends and receives.
  Exchange& exchange();
  /// What this rank did; any thread.
  Trace& trace();

  /// Ends a running operation of this rank with kAborted, and refuses later ones. Any thread.
  void abort();
  /// The first failure; null while all is well. Any thread.
  Outcome failure() const;

  struct State;  ///< private to this folder

 private:
  explicit Group(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace cohort::shm
