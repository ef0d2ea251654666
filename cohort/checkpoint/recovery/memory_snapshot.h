/// MemorySnapshot: keeps the last state of every rank in memory that the launcher holds, so that a job that loses a worker goes
/// on from there instead of from the last file.
///
///     checkpoint::MemorySnapshot snapshot(checkpoint::snapshot_state(*net, optimizer), {.every_steps = 1});
///     int64_t step = snapshot.resume([&] { return load_file_if_there_is_one(); }).step;
///     while (step < last_step) {
///       train_one_step();
///       snapshot.step(++step);
///     }
///
/// Needs `cohort run`, with --max-restarts. A state counts once all ranks of all nodes have stored it; the previous one is kept
/// until then. Each host needs memory for two states and, with several nodes, for the states that only its partner's ranks have.
/// The memory is freed at the end of the job, in every case. docs/guide/recovery.md says more.
///
/// A process may have one object at a time. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/checkpoint/recovery/snapshot_state.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

struct MemorySnapshotOptions {
  /// The number of steps from one kept state to the next.
  int64_t every_steps = 1;
  /// Whether tensors of 64 KiB and more are copied during the next forward and backward pass; call before_step() before they
  /// change. Useful if the host has a spare core for each rank. If false, step() returns when the copy is complete.
  bool overlap = false;
  /// Whether to throw c10::Error if snapshots cannot be kept (no launcher, too little memory, ...). If false, one warning says
  /// so, and training goes on without them. All ranks stop keeping snapshots at the same time.
  bool required = false;
};

enum class ResumedFrom {
  kNothing,      ///< neither a snapshot nor a file
  kMemory,       ///< this node's memory
  kOtherMemory,  ///< another node's memory: this node was replaced, or the ranks have changed places
  kDisk,         ///< `from_disk` has found something
};

struct Resumed {
  ResumedFrom from = ResumedFrom::kNothing;
  /// The state's step; 0 for kNothing.
  int64_t step = 0;
  /// Whether as many ranks as now have made it: then training goes on as if nothing had happened, bit for bit. True for kDisk.
  bool is_exact = true;
  /// The reason why no snapshot was used although some were kept; otherwise "".
  std::string why_not_memory;
  /// kOtherMemory: which node's.
  std::optional<int> from_node = {};
  /// Returns "step 41 from memory", "step 41 from the memory of node 1", "step 30 from disk (...)" or "from the start".
  COHORT_API std::string describe() const;
};

class COHORT_API MemorySnapshot {
 public:
  /// Throws c10::ValueError for `every_steps` < 1, and without `state.get`.
  explicit MemorySnapshot(SnapshotState state, MemorySnapshotOptions options = {});
  /// Does not wait for other ranks.
  ~MemorySnapshot();
  MemorySnapshot(const MemorySnapshot&) = delete;
  MemorySnapshot& operator=(const MemorySnapshot&) = delete;

  /// Loads a state from disk, and returns its step; absent if there is nothing to load.
  using FromDisk = std::function<std::optional<int64_t>()>;
  /// Restores the newest state that every rank can get from memory, or otherwise calls `from_disk` on every rank (if null, there
  /// are no files). Collective; call it once, before the first step(), in the default process group. With `step_on_disk`, which
  /// must be the same on all ranks, takes the newer of the two.
  /// Throws c10::Error if the state does not fit, and whatever `from_disk` throws.
  Resumed resume(const FromDisk& from_disk = nullptr, std::optional<int64_t> step_on_disk = std::nullopt);

  /// Call it on all ranks when the `step`-th step is complete. Keeps a state if one is due; waits until all ranks have stored the
  /// previous one, which they normally have. Throws c10::Error without resume(), and as `required` says.
  void step(int64_t step);
  /// With `overlap`: blocks until the copy is complete. Call it before optimizer->step(), and before all other changes of the
  /// state; step() and the destructor also do this. Throws c10::Error if a tensor was changed meanwhile.
  void before_step();

  /// Returns the step of the newest state that all ranks have in memory.
  std::optional<int64_t> complete_step() const;
  /// Whether snapshots are kept.
  bool is_on() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::checkpoint
