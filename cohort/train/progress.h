/// ProgressLine: what a person watching a training run wants to see, once per line: step, loss, speed, time left.
///
///     cohort::train::ProgressLine progress({.total_steps = 2000, .unit = "tokens", .is_enabled = rank == 0});
///     progress.update(step, tokens_so_far, {{"loss", loss}, {"lr", rate}});
///
/// On a terminal one line is rewritten in place, in colour unless NO_COLOR is set or TERM is "dumb", and never wider than the
/// terminal; elsewhere every shown update is a line of its own. Each update is one write, so lines of several ranks do not mix.
/// Messages of the library stand above the line. logging/epoch_line.h counts in epochs.
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
  kAuto,      ///< by what the output is
  kLog,       ///< a line per update
  kTerminal,  ///< one line, rewritten
};

struct ProgressOptions {
  int64_t total_steps = 0;
  /// Steps done before this run (resume); speed and time left count only this run's.
  int64_t first_step = 0;
  /// What `done` in update() counts.
  std::string unit = "samples";
  /// False on every rank but one: then nothing is written.
  bool is_enabled = true;
  /// Updates that come sooner after the shown one are dropped, except the last step's.
  /// Default: 200 ms on a terminal, 5 s elsewhere.
  std::optional<std::chrono::milliseconds> min_interval = {};
  LineStyle style = LineStyle::kAuto;
  int fd = 1;
  /// For tests; default: the steady clock.
  std::function<std::chrono::steady_clock::time_point()> now;
};

using Metrics = std::vector<std::pair<std::string, double>>;

/// Counts `done` units in `elapsed`; "14.9k tokens/s".
COHORT_API std::string format_rate(double units_per_second, std::string_view unit);
/// "0:07", "12:34", "1:02:03".
COHORT_API std::string format_clock(std::chrono::seconds time);

class COHORT_API ProgressLine {
 public:
  explicit ProgressLine(ProgressOptions options);
  /// Ends an unfinished terminal line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `step` steps of total_steps are done; `done` units were processed since this object was made.
  void update(int64_t step, int64_t done, const Metrics& metrics);

  /// A line of text that stays, above the progress line. No newline at the end.
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
