/// Checkpointer: keeps the checkpoints of a run in one folder, each in a folder of its own ("step-00001200").
///
///     checkpoint::Checkpointer checkpoints("runs/a", {.every_steps = 500, .stop_signals = {SIGTERM}, .keep_last = 3});
///     const int64_t begin = checkpoints.load_latest(state).value_or(0);
///     for (int64_t step = begin + 1; step <= last && !checkpoints.stop_requested(); ++step) {
///       ... train ...
///       checkpoints.maybe_save([&] { return state; }, step);
///     }
///     checkpoints.wait();
///
/// A checkpoint is complete or does not appear at all, whenever a process is killed and whatever error the disk gives: it is
/// written under another name, gets a manifest with the sizes and checksums of its files, is synced to disk, and renamed.
///
/// Collective: every rank of the default group (or this process alone, without a group) makes the same calls in the same
/// order, with the same folder, which all must see. If one rank fails, all throw a c10::Error that names the ranks and hosts.
/// Thread-safety: one thread at a time. Destroy it before destroy_process_group(), and before the process ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/state/state_value.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// Functions that save and load one checkpoint. Every rank calls, with the same folder. `group`: all ranks, only for this call;
/// null if this process is alone.
struct CheckpointFormat {
  /// Writes into `folder`, which exists and is empty. Called in a thread of the Checkpointer, unless saves are synchronous.
  /// Returns: the files that this rank has written, by names below `folder`.
  std::function<std::vector<std::string>(const ShardedStateDict& state, const std::string& folder, const Group& group)>
      save;
  /// Copies into the tensors of `state`, and replaces its plain values.
  std::function<void(ShardedStateDict& state, const std::string& folder, const Group& group)> load;
};

/// The treatment of a save while the previous one is still running.
enum class WhenBusy {
  kWait,
  kRefuse,  ///< save() returns false
};

/// The effect of a failed save on training. Existing checkpoints are untouched either way.
enum class OnSaveError {
  kThrow,     ///< the next call that saves throws, or wait()
  kContinue,  ///< prints a warning; last_error() has the text
};

struct CheckpointerOptions {
  /// When maybe_save() saves: at multiples of this many steps, when this much time has passed since the last save by rank 0's
  /// clock (both unless absent), and after any rank has got one of `stop_signals`.
  std::optional<int64_t> every_steps = {};
  std::optional<std::chrono::milliseconds> every = {};
  /// Signals that ask for a last checkpoint, such as SIGTERM. A Checkpointer handles them as long as it lives; a second signal
  /// of the same kind ends the process.
  std::vector<int> stop_signals = {};
  /// run(): how often, in steps, maybe_save() copies the state in memory, to save it after an exception. If absent, it copies
  /// nothing.
  std::optional<int64_t> snapshot_every_steps = {};
  /// The time that run() waits for other ranks after an exception.
  std::chrono::milliseconds exception_timeout = std::chrono::seconds(30);

  /// Whether training goes on once the state is copied, into memory that is reused from save to save.
  bool asynchronous = true;
  WhenBusy when_busy = WhenBusy::kWait;
  OnSaveError on_error = OnSaveError::kThrow;

  /// The checkpoints to keep: the newest ones (if absent, all); also, for ever, multiples of this many steps; also the ones
  /// with the best metric, which is the lowest unless `highest_is_best`.
  std::optional<int64_t> keep_last = {};
  std::optional<int64_t> keep_every = {};
  int64_t keep_best = 0;
  bool highest_is_best = false;

  /// Whether latest() and the loads read every byte and compare checksums. If false, they check only names and sizes.
  bool verify_checksums = true;
  /// If not set, save_sharded and load_sharded (sharded_checkpoint.h), so that any number of ranks can load.
  CheckpointFormat format = {};
};

struct SaveInfo {
  std::optional<double> metric = {};
  /// Texts for the manifest. Rank 0's are used.
  std::map<std::string, std::string> metadata = {};
};

struct SavedCheckpoint {
  int64_t step = 0;
  std::string folder = {};
  SaveInfo info = {};
};

class COHORT_API Checkpointer {
 public:
  /// Removes unfinished saves of killed runs; the folder need not exist yet.
  /// Throws c10::ValueError for invalid options. Throws c10::Error if it is to save by itself and another job saves in this
  /// folder; the text has the other job's rank 0 (host and pid in the file ".lock"). A Checkpointer that saves only on request
  /// throws this at its first save. The lock is released with the Checkpointer, or when its process ends.
  explicit Checkpointer(std::string folder, CheckpointerOptions options = {});
  /// Waits for the running save. Its error, and an error that was not reported yet, is printed as a warning.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Saves `state` as `step`, and replaces a checkpoint of this step. Requires: step >= 0. The state may change after the return.
  /// Returns: false if it was refused (WhenBusy::kRefuse), on all ranks alike.
  /// Throws the error of the save before it (OnSaveError::kThrow), and its own where it is synchronous.
  bool save(const ShardedStateDict& state, int64_t step, const SaveInfo& info = {});

  /// Saves if a save is due or a stop was requested; calls `state` only then. Call it after each step on every rank.
  /// Returns: whether it has saved.
  bool maybe_save(const std::function<ShardedStateDict()>& state, int64_t step, const SaveInfo& info = {});
  /// Whether maybe_save() has saved because of a signal; the same on all ranks.
  bool stop_requested() const;

  /// Waits for the running save. Throws its error (OnSaveError::kThrow).
  void wait();
  /// Returns the text of the newest save's error; empty if it succeeded.
  const std::string& last_error() const;

  /// Calls `body`. If an exception leaves it, finishes the running save and saves the newest copy in memory
  /// (snapshot_every_steps), if all ranks have a copy of the same step. Throws the exception on in every case.
  void run(const std::function<void()>& body);

  /// Returns the newest complete checkpoint; warns why newer ones are not complete. All ranks get rank 0's answer.
  /// Throws c10::Error naming ranks and hosts that do not see the same folder.
  std::optional<SavedCheckpoint> latest();
  /// Reads latest() into `state`. Returns: its step. Without a checkpoint it is absent, and `state` is unchanged.
  std::optional<int64_t> load_latest(ShardedStateDict& state);
  /// Reads the checkpoint of `step`. Throws c10::Error unless it is there and whole.
  SavedCheckpoint load(ShardedStateDict& state, int64_t step);

  [[deprecated("use save(state, step, info)")]] bool save(int64_t step, const ShardedStateDict& state,
                                                          const SaveInfo& info = {}) {
    return save(state, step, info);
  }
  [[deprecated("use maybe_save(state, step, info)")]] bool maybe_save(int64_t step,
                                                                      const std::function<ShardedStateDict()>& state,
                                                                      const SaveInfo& info = {}) {
    return maybe_save(state, step, info);
  }
  [[deprecated("use load(state, step)")]] SavedCheckpoint load(int64_t step, ShardedStateDict& state) {
    return load(state, step);
  }

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::checkpoint
