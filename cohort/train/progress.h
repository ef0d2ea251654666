/// ProgressLine: one line about a training run: step, loss, speed, and time left.
///
///     cohort::train::ProgressLine progress({.total_steps = 2000, .unit = "tokens", .is_enabled = rank == 0});
///     progress.update(step, tokens_so_far, {{"loss", loss}, {"lr", rate}});
///
/// On a terminal one line is rewritten in place, in color unless NO_COLOR is set or TERM is "dumb", and never wider than the
/// terminal. In other outputs every update is a line of its own. Each update is one write, so lines of several ranks do not mix.
/// Messages of the library appear above the line. EpochLine (logging/epoch_line.h) counts in epochs.
/// Thread-safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::report {
class LiveLine;
}

namespace cohort::train {

enum class LineStyle {
  kAuto,      ///< kTerminal on a terminal, else kLog
  kLog,       ///< a line per update
  kTerminal,  ///< one line, rewritten
};

struct ProgressOptions {
  /// The steps of the whole run. If absent, lines do not show the time left, and update() takes no step as the last.
  std::optional<int64_t> total_steps = {};
  /// Steps done before this run (resume). Speed and time left count only this run's steps.
  int64_t first_step = 0;
  /// The unit of `done` in update().
  std::string unit = "samples";
  /// False on every rank but one; only that rank writes.
  bool is_enabled = true;
  /// Drops an update that comes sooner than this after the last one shown, except that of the last step. Default: 200 ms on a
  /// terminal, 5 s in other outputs.
  std::optional<std::chrono::milliseconds> min_interval = {};
  LineStyle style = LineStyle::kAuto;
  int fd = 1;
  /// The clock, for tests. Default: the steady clock.
  std::function<std::chrono::steady_clock::time_point()> now;
};

using Metrics = std::vector<std::pair<std::string, double>>;

/// Returns "14.9k tokens/s".
COHORT_API std::string format_rate(double units_per_second, std::string_view unit);
/// Returns "0:07", "12:34", "1:02:03".
COHORT_API std::string format_clock(std::chrono::seconds time);

class COHORT_API ProgressLine {
 public:
  explicit ProgressLine(ProgressOptions options);
  /// Ends an unfinished terminal line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `step`: steps of total_steps that are done. `done`: units processed since this object was made.
  void update(int64_t step, int64_t done, const Metrics& metrics);

  /// Prints a line of text that stays, above the progress line. `text` has no newline at the end.
  void print(std::string_view text);

 private:
  std::chrono::steady_clock::time_point now() const;

  ProgressOptions options_;
  std::unique_ptr<report::LiveLine> line_;
  bool was_shown_ = false;
  std::chrono::steady_clock::time_point started_at_;
  std::chrono::steady_clock::time_point shown_at_;
};

}  // namespace cohort::train
