/// EpochLine: one live line per epoch: progress, loss and metrics, the speed of all ranks together and of each, the share of time
/// that ranks waited for data and for each other, time left, and memory.
///
///     cohort::train::EpochLine line({.num_epochs = 10, .world_size = cohort::get_world_size(), .is_enabled = rank == 0});
///     line.begin(epoch, loader.size());
///     for (...) line.update({.step = step, .num_samples = samples, .metrics = {{"loss", loss}}});
///     line.end({.step = step, .num_samples = samples, .metrics = {{"loss", mean}, {"accuracy", accuracy}}});
///
/// On a terminal the line is rewritten in place and never wider than the terminal: the least important parts are left out first.
/// In other outputs every update is a line of its own. The last line of an epoch stays.
///
/// Messages of the library, also of other ranks, LibTorch's warnings on the thread that made the line, and the texts of print()
/// appear in lines of their own above the live line. A program's own writes to the terminal do not.
///
/// Thread-safety: one thread; print() and the library's messages may come from any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/export.h"
#include "cohort/train/progress.h"

namespace cohort::train {

struct EpochLineOptions {
  /// Absent if not known.
  std::optional<int64_t> num_epochs = {};
  int world_size = 1;
  /// The unit that num_samples counts.
  std::string unit = "samples";
  /// False on every rank but one; only that rank writes.
  bool is_enabled = true;
  /// Writes only the texts of print() if the output is not a terminal.
  bool only_on_terminal = false;
  /// Drops an update that comes sooner than this after the last one shown. Default: 200 ms on a terminal, 5 s in other outputs.
  std::optional<std::chrono::milliseconds> min_interval = {};
  LineStyle style = LineStyle::kAuto;
  int fd = 1;
  /// The clock, for tests. Default: the steady clock.
  std::function<std::chrono::steady_clock::time_point()> now = {};
};

/// The progress of an epoch.
struct EpochState {
  /// Completed steps of this epoch, including those before a resume.
  int64_t step = 0;
  /// Samples of all ranks since begin().
  int64_t num_samples = 0;
  Metrics metrics = {};
  /// Seconds since begin(). Default: by the line's clock, which pause() stops.
  std::optional<double> seconds = {};
  /// Shares of the time since begin(), 0 to 1.
  std::optional<double> data_wait_share = {};
  std::optional<double> communication_share = {};
  /// Default: the resident memory of this process.
  std::optional<uint64_t> memory_bytes = {};
};

class COHORT_API EpochLine {
 public:
  explicit EpochLine(EpochLineOptions options);
  /// Ends an unfinished line.
  ~EpochLine();
  EpochLine(const EpochLine&) = delete;
  EpochLine& operator=(const EpochLine&) = delete;

  /// `epoch`: counted from 0, shown from 1; absent for a line that shows something else. `num_steps`: absent if not known.
  /// `first_step`: steps done before a resume. `label`: "epoch", or the name of this pass, such as "validation".
  void begin(std::optional<int64_t> epoch, std::optional<int64_t> num_steps, int64_t first_step = 0,
             const std::string& label = "epoch");
  void update(const EpochState& state);
  /// Shows the epoch's last line, which stays. If `is_kept` is false, it vanishes (on a terminal).
  void end(const EpochState& state, bool is_kept = true);
  /// Stops the clock until resume(), for time that does not count, such as a validation. On a terminal the line vanishes until
  /// the next update.
  void pause();
  void resume();
  /// Prints lines of text that stay, above the live line. `text` has no newline at the end.
  void print(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::train
