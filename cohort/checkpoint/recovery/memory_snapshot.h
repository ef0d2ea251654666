/// MemorySnapshot: the last state of every rank, in memory that the launcher holds, so that a job that loses a worker goes on
/// from there instead of from the last file.
///
///     checkpoint::MemorySnapshot snapshot(checkpoint::snapshot_state(*net, optimizer), {.every = 1});
///     int64_t step = snapshot.resume([&] { return load_file_if_there_is_one(); }).step;
///     while (step < last_step) {
///       train_one_step();
///       snapshot.step(++step);
///     }
///
/// Needs `cohort run`, with --max-restarts. A state counts once all ranks of all nodes have finished it; the one before stays
/// until then. Each host needs memory for two states, and on several nodes for what its partner's ranks have of their own. The
/// memory is given back at the job's end, whatever died. docs/guide/recovery.md says more.
///
/// One object of a process at a time. Thread-safety: one thread at a time.
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
  /// step() keeps every so many steps.
  int64_t every = 1;
  /// Tensors of 64 KiB and more are copied beside the next forward and backward pass; before_step() must be called before they
  /// change. Worth it
  /// where the host has a core to spare for each rank. False: step() returns when the copy is done.
  bool overlap = false;
  /// Where snapshots cannot be kept (no launcher, too little memory, ...): throw c10::Error. False: that is said once, and
  /// training goes on without them. All ranks stop keeping at the same time.
  bool required = false;
};

enum class ResumedFrom {
  kNothing,      ///< neither a snapshot nor a file
  kMemory,       ///< this node's memory
  kOtherMemory,  ///< another node's: this one was replaced, or the ranks have changed places
  kDisk,         ///< `from_disk` has found something
};

struct Resumed {
  ResumedFrom from = ResumedFrom::kNothing;
  /// Of which the state is; 0 from nothing.
  int64_t step = 0;
  /// Made by as many ranks as there are now: training goes on as if nothing had happened, bit for bit. From disk: true.
  bool is_exact = true;
  /// Why there was no snapshot to go on from, although some were kept; "" otherwise.
  std::string why_not_memory;
  /// kOtherMemory: which node's.
  int from_node = -1;
  /// "step 41 from memory", "step 41 from the memory of node 1", "step 30 from disk (...)", "from the start".
  COHORT_API std::string describe() const;
};

class COHORT_API MemorySnapshot {
 public:
  /// Throws c10::ValueError for `every` < 1 or without `state.get`.
  explicit MemorySnapshot(SnapshotState state, MemorySnapshotOptions options = {});
  /// Does not wait for other ranks.
  ~MemorySnapshot();
  MemorySnapshot(const MemorySnapshot&) = delete;
  MemorySnapshot& operator=(const MemorySnapshot&) = delete;

  /// Returns what `from_disk` has loaded: the step, or nothing if there is nothing to load.
  using FromDisk = std::function<std::optional<int64_t>()>;
  /// Collective; once, before the first step(), in the default process group. Restores the newest state that every rank can have
  /// from memory, or else calls `from_disk` (on every rank; null: there are no files). With `step_on_disk`, which must be the
  /// same on all ranks, the newer of both counts.
  /// Throws c10::Error if the state does not fit, and whatever `from_disk` throws.
  Resumed resume(const FromDisk& from_disk = nullptr, std::optional<int64_t> step_on_disk = std::nullopt);

  /// After the `step`-th step is complete on this rank; all ranks call it alike. Keeps a state if it is due; waits until all
  /// ranks have the one before, which they normally have. Throws c10::Error without resume(), and as `required` says.
  void step(int64_t step);
  /// With `overlap`: blocks until the copy is done. Before optimizer->step(), and whatever else changes what is kept; step() and
  /// the destructor do it as well. Throws c10::Error if a tensor was changed meanwhile.
  void before_step();

  /// The newest state that all ranks have in memory.
  std::optional<int64_t> complete_step() const;
  /// False once snapshots cannot be kept.
  bool is_on() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::checkpoint
