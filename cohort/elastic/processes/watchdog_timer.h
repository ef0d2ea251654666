/// Watchdog timers: a worker says by when a block of its code must be over, and the launcher ends a process that overruns.
///
/// Workers write one line of JSON per request to a named pipe, whose path is in TORCHELASTIC_TIMER_FILE. The lines are those of
/// torch/distributed/elastic/timer/file_based_local_timer.py of PyTorch 2.13, so Python's timer.expires() and cohort::Expires
/// work with this and with torchrun:
///
///     {"version": 1, "pid": 4711, "scope_id": "epoch", "expiration_time": 1700000000.5, "signal": 9}
///
/// Any process with access may write a line for any pid, so the launcher only signals its own workers and their child processes
/// in their session. Lines may have 4 KiB, and there may be 4096 timers. Malformed requests are logged once and ignored.
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
  /// Seconds since 1970. A negative number releases the timer.
  double expiration_time = 0;
  /// The signal that ends the process. 0 or less means none.
  int signal = 0;
};
/// Parses one line; nothing if it is not a request. Pure.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

/// A block that ran too long.
struct Overrun {
  pid_t pid = 0;
  /// The pid of the worker that the process belongs to.
  pid_t worker = 0;
  std::string scope;
  double expiration_time = 0;
  /// The signal that was sent. 0 means that the request named none.
  int signal = 0;
  /// Returns `block "epoch" overran its timer`, fit for a line of a log.
  std::string describe() const;
};

/// Thread-safety: one thread at a time.
class WatchdogTimer {
 public:
  /// Creates the pipe with mode 0600: at `path`, or if that is "" in a fresh folder of TMPDIR. Replaces a pipe that a former
  /// launcher has left at `path`. If another launcher still reads that pipe, logs this and uses a fresh path. Errors: `path` is
  /// something else, or cannot be created.
  static base::Result<WatchdogTimer> create(const std::string& path);
  WatchdogTimer(WatchdogTimer&& other) noexcept = default;
  /// Removes the pipe.
  ~WatchdogTimer();

  const std::string& path() const { return path_; }
  /// Removes what create() has made. For a process that outlives the one that made it.
  void remove_files() const;

  /// Readable while requests wait.
  int fd() const { return pipe_.get(); }
  /// Reads requests. `workers` has the workers' pids; processes of others get no timer.
  void read(const std::set<pid_t>& workers);
  /// Drops all timers, and the requests that wait.
  void forget();

  /// The earliest expiration in seconds since 1970.
  std::optional<double> next_expiration() const;
  /// Ends processes that have overrun at `now`: of a process's expired timers the first that names a signal counts, as in
  /// PyTorch. Ignores processes that have ended, or no longer belong to one of `workers`.
  std::vector<Overrun> end_overruns(double now, const std::set<pid_t>& workers);

 private:
  struct Timer {
    double expiration_time;
    int signal;
    /// The start time of the process, in case its pid is reused.
    std::string started_at;
  };

  WatchdogTimer() = default;
  void take_line(std::string_view line, const std::set<pid_t>& workers);
  void ignore(const std::string& why);

  std::string path_;
  /// The folder that was made for the pipe; "" if the pipe is elsewhere.
  std::string folder_;
  base::Fd pipe_;
  std::string partial_line_;
  bool is_line_too_long_ = false;
  bool has_ignored_ = false;
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
};

/// Returns the time of day in seconds since 1970, as in requests.
double seconds_since_1970();

}  // namespace cohort::elastic
