/// Watchdog timers: a worker says by when a block of its code must be over, and a process that overruns is ended.
///
/// Workers write one line of JSON per request to a named pipe, whose path is in TORCHELASTIC_TIMER_FILE. The lines are those of
/// torch/distributed/elastic/timer/file_based_local_timer.py of PyTorch 2.13, so Python's timer.expires() and cohort::Expires
/// work with this and with torchrun:
///
///     {"version": 1, "pid": 4711, "scope_id": "epoch", "expiration_time": 1700000000.5, "signal": 9}
///
/// Whoever may write there may name any pid, so only our own workers and their child processes in their session are ever
/// signalled. Lines are 4 KiB at most, timers 4096; what is no request is said once and ignored.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::elastic {

struct TimerRequest {
  pid_t pid = 0;
  std::string scope;
  /// Seconds since 1970; a negative one releases the timer.
  double expiration_time = 0;
  /// To end the process with; 0 or less: none.
  int signal = 0;
};
/// One line; nothing if it is not a request. Pure.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

/// A block that ran too long.
struct Overrun {
  pid_t pid = 0;
  /// The pid of the worker that the process belongs to.
  pid_t worker = 0;
  std::string scope;
  double expiration_time = 0;
  /// The one that was sent; 0: none was asked for.
  int signal = 0;
  /// `block "epoch" overran its timer`, fit for a line of a log.
  std::string describe() const;
};

/// Thread-safety: one thread at a time.
class WatchdogTimer {
 public:
  /// Makes the pipe, mode 0600: at `path`, or if that is "" in a fresh folder of TMPDIR. A pipe that a former launcher has
  /// left at `path` is replaced; where another one still reads it, a fresh path is taken, and that is said. Errors: `path` is
  /// something else, or cannot be made.
  static base::Result<WatchdogTimer> create(const std::string& path);
  WatchdogTimer(WatchdogTimer&& other) noexcept = default;
  /// Removes the pipe.
  ~WatchdogTimer();

  const std::string& path() const { return path_; }
  /// Removes what create() has made. For a process that outlives the one which made it.
  void remove_files() const;

  /// Readable while requests wait.
  int fd() const { return pipe_.get(); }
  /// Takes requests in. `workers`: their pids; others' processes get no timer.
  void read(const std::set<pid_t>& workers);
  /// Drops all timers, and the requests that wait.
  void forget();

  /// The earliest expiration, seconds since 1970.
  std::optional<double> next_expiration() const;
  /// Ends what has overrun at `now`: of the expired timers of a process the first that names a signal counts, as in PyTorch.
  /// Processes that are gone, or no longer belong to one of `workers`, are left alone.
  std::vector<Overrun> end_overruns(double now, const std::set<pid_t>& workers);

 private:
  struct Timer {
    double expiration_time;
    int signal;
    /// Of the process, in case its pid becomes another's.
    std::string started_at;
  };

  WatchdogTimer() = default;
  void take_line(std::string_view line, const std::set<pid_t>& workers);
  void ignore(const std::string& why);

  std::string path_;
  /// Made for the pipe alone; "" if it stands elsewhere.
  std::string folder_;
  base::Fd pipe_;
  std::string partial_line_;
  bool is_line_too_long_ = false;
  bool has_ignored_ = false;
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
};

/// The time of day in seconds since 1970, as requests give it.
double seconds_since_1970();

}  // namespace cohort::elastic
