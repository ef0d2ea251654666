/// EpochLine: one live line per epoch: what is done, loss and metrics, speed of all ranks and of each, what part of the time
/// ranks waited for data and for each other, time left, memory.
///
///     cohort::train::EpochLine line({.num_epochs = 10, .world_size = cohort::get_world_size(), .is_enabled = rank == 0});
///     line.begin(epoch, loader.size());
///     for (...) line.update({.step = step, .num_samples = samples, .metrics = {{"loss", loss}}});
///     line.end({.step = step, .num_samples = samples, .metrics = {{"loss", mean}, {"accuracy", accuracy}}});
///
/// On a terminal the line is rewritten in place and never wider than the terminal: what is least important is left out first.
/// Elsewhere every shown update is a line of its own. The last line of an epoch stays.
///
/// Messages of the library, LibTorch's warnings on the thread that made the line, and what goes through print() stand in lines of
/// their own above the live line, also those of other ranks; what a program writes to the terminal by itself does not.
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
  /// 0: not known.
  int64_t num_epochs = 0;
  int world_size = 1;
  /// What num_samples counts.
  std::string unit = "samples";
  /// False on every rank but one: then nothing is written.
  bool is_enabled = true;
  /// Elsewhere than on a terminal nothing is written but what print() is given.
  bool only_on_terminal = false;
  /// Updates that come sooner after the shown one are dropped. Default: 200 ms on a terminal, 5 s elsewhere.
  std::optional<std::chrono::milliseconds> min_interval = {};
  LineStyle style = LineStyle::kAuto;
  int fd = 1;
  /// For tests; default: the steady clock.
  std::function<std::chrono::steady_clock::time_point()> now = {};
};

/// Where an epoch stands.
struct EpochState {
  /// Steps of this epoch that are done, those before a resume included.
  int64_t step = 0;
  /// Samples since begin(), of all ranks together.
  int64_t num_samples = 0;
  Metrics metrics = {};
  /// Since begin(). Default: by the line's clock, which pause() stops.
  std::optional<double> seconds = {};
  /// Parts of the time since begin(), 0 to 1.
  std::optional<double> data_wait_share = {};
  std::optional<double> communication_share = {};
  /// Default: what this process holds (resident).
  std::optional<uint64_t> memory_bytes = {};
};

class COHORT_API EpochLine {
 public:
  /// For begin(): what it shows is not of an epoch.
  static constexpr int64_t kNoEpoch = -1;

  explicit EpochLine(EpochLineOptions options);
  /// Ends an unfinished line.
  ~EpochLine();
  EpochLine(const EpochLine&) = delete;
  EpochLine& operator=(const EpochLine&) = delete;

  /// `epoch`: counted from 0, shown from 1. `num_steps`: 0 if not known. `first_step`: done before a resume. `label`: "epoch", or
  /// what this pass is, such as "validation".
  void begin(int64_t epoch, int64_t num_steps, int64_t first_step = 0, const std::string& label = "epoch");
  void update(const EpochState& state);
  /// The epoch's last line, which stays. `is_kept` false: the line vanishes (on a terminal).
  void end(const EpochState& state, bool is_kept = true);
  /// Time that does not count, such as a validation's, passes until resume(). On a terminal the line vanishes until the next
  /// update.
  void pause();
  void resume();
  /// Lines of text that stay, above the live line. No newline at the end.
  void print(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::train
