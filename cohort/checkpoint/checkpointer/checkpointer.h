/// Checkpointer: the checkpoints of a run, in a folder of its own, one folder each ("step-00001200").
///
///     checkpoint::Checkpointer checkpoints("runs/a", {.every_steps = 500, .keep_last = 3, .stop_signals = {SIGTERM}});
///     const int64_t begin = checkpoints.load_latest(state).value_or(0);
///     for (int64_t step = begin + 1; step <= last && !checkpoints.stop_requested(); ++step) {
///       ... train ...
///       checkpoints.maybe_save(step, [&] { return state; });
///     }
///     checkpoints.wait();
///
/// A checkpoint appears whole or not at all, whenever a process is killed and whatever the disk refuses: it is written under
/// another name, has a manifest with the sizes and checksums of its files, is synced to disk, and renamed.
///
/// Collective: every rank of the default group (this process alone where there is none) makes the same calls in the same
/// order, with the same folder, which all must see. What one rank cannot do is an error on all: c10::Error that names the
/// ranks and hosts.
/// Thread-safety: one thread at a time. Let it end before destroy_process_group(), and before the process ends.
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

/// How one checkpoint is written and read. Every rank calls, with the same folder; `group`: all ranks, for the exclusive use of
/// this call; null for a process alone.
struct CheckpointFormat {
  /// Writes into `folder`, which is there and empty. In a thread of the Checkpointer, unless saves are synchronous.
  /// Returns: the files that this rank has written, by names below `folder`.
  std::function<std::vector<std::string>(const ShardedStateDict& state, const std::string& folder, const Group& group)>
      write;
  /// Copies into the tensors of `state`, and replaces its plain values.
  std::function<void(ShardedStateDict& state, const std::string& folder, const Group& group)> read;
};

/// A save while the one before it still goes on.
enum class WhenBusy {
  kWait,
  kRefuse,  ///< save() returns false
};

/// What a save that failed does to training. Checkpoints that were there are untouched either way.
enum class OnSaveError {
  kThrow,     ///< the next call that saves throws, or wait()
  kContinue,  ///< it is a warning, and last_error()
};

struct CheckpointerOptions {
  /// When maybe_save() saves: at multiples of so many steps; when so much time has passed since the last save, by rank 0's
  /// clock; 0: never. And after one of `stop_signals` has come to any rank.
  int64_t every_steps = 0;
  std::chrono::milliseconds every{0};
  /// Signals that ask for a last checkpoint, such as SIGTERM. While a Checkpointer lives it handles them; a second one of
  /// the same kind ends the process.
  std::vector<int> stop_signals = {};
  /// run(): so often maybe_save() keeps a copy of the state in memory, to be saved when an exception comes; 0: never.
  int64_t snapshot_every_steps = 0;
  /// How long run() waits for other ranks when an exception has come.
  std::chrono::milliseconds exception_timeout = std::chrono::seconds(30);

  /// Training goes on once the state is copied, into memory that is kept from save to save.
  bool asynchronous = true;
  WhenBusy when_busy = WhenBusy::kWait;
  OnSaveError on_error = OnSaveError::kThrow;

  /// What is kept: the newest ones (0: all); besides those, for ever, multiples of so many steps; besides those, the ones
  /// with the best metric, the lowest unless told otherwise.
  int64_t keep_last = 0;
  int64_t keep_every = 0;
  int64_t keep_best = 0;
  bool highest_is_best = false;

  /// latest() and the loads read every byte and compare checksums; false: only names and sizes.
  bool verify_checksums = true;
  /// Default: save_sharded and load_sharded (sharded_checkpoint.h), so that any number of ranks loads what others saved.
  CheckpointFormat format = {};
};

struct SaveInfo {
  std::optional<double> metric = {};
  /// Texts that stand in the manifest. Rank 0's count.
  std::map<std::string, std::string> metadata = {};
};

struct SavedCheckpoint {
  int64_t step = 0;
  std::string folder = {};
  SaveInfo info = {};
};

class COHORT_API Checkpointer {
 public:
  /// Removes what killed runs have left of unfinished saves; the folder need not exist yet.
  /// Throws c10::ValueError for options that cannot work, and c10::Error where it is to save by itself and another job saves in
  /// this folder, which rank 0's host and pid in its file ".lock" tell; else the first save says so. The lock goes with the
  /// Checkpointer, or with its process.
  explicit Checkpointer(std::string folder, CheckpointerOptions options = {});
  /// Waits for the save that goes on. Its error, and one that nobody has heard of yet, is a warning.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Saves `state` as `step`, replacing a checkpoint of this step. Requires step >= 0. The state may change once it returns.
  /// Returns: false if it was refused (WhenBusy::kRefuse), alike on all ranks.
  /// Throws the error of the save before it (OnSaveError::kThrow), and its own where it is synchronous.
  bool save(int64_t step, const ShardedStateDict& state, const SaveInfo& info = {});

  /// Saves if it is time to, or a stop was asked for; `state` is called only then. Call it after each step on every rank.
  /// Returns: whether it has saved.
  bool maybe_save(int64_t step, const std::function<ShardedStateDict()>& state, const SaveInfo& info = {});
  /// True, alike on all ranks, from the maybe_save() on that has saved because of a signal.
  bool stop_requested() const;

  /// Waits for the save that goes on. Throws its error (OnSaveError::kThrow).
  void wait();
  /// The text of the newest save's error; empty if it succeeded.
  const std::string& last_error() const;

  /// Calls `body`. When an exception leaves it, finishes the save that goes on and saves the newest copy that is in memory
  /// (snapshot_every_steps), if all ranks come here with one of the same step. The exception is thrown on, whatever happens.
  void run(const std::function<void()>& body);

  /// The newest checkpoint that is whole; of newer ones that are not a warning says why. All ranks get rank 0's answer.
  /// Throws c10::Error naming ranks and hosts that do not see the same folder.
  std::optional<SavedCheckpoint> latest();
  /// Reads latest() into `state`. Returns: its step; nothing, and `state` untouched, if there is none.
  std::optional<int64_t> load_latest(ShardedStateDict& state);
  /// Reads the checkpoint of `step`. Throws c10::Error unless it is there and whole.
  SavedCheckpoint load(int64_t step, ShardedStateDict& state);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::checkpoint
