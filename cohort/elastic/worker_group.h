/// The workers of one node: started together, watched, and ended together.
///
/// One thread, one poll: exits arrive by pidfd, signals by signalfd, output by pipe. The first worker that fails ends
/// the others: SIGTERM to their sessions, after the time-out SIGKILL.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/process.h"
#include "cohort/elastic/console.h"
#include "cohort/elastic/failure_report.h"
#include "cohort/elastic/log_routing.h"
#include "cohort/elastic/session.h"
#include "cohort/elastic/signals.h"

namespace cohort::elastic {

struct WorkerSpec {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  WorkerRoutes routes;
  /// Stands before each line that is shown by tee.
  std::string line_prefix;
};

struct GroupResult {
  /// The signal that ended the group, if one did.
  std::optional<int> signal;
  /// In the order in which they were noticed.
  std::vector<WorkerFailure> failures;
  bool ok() const { return !signal && failures.empty(); }
};

class WorkerGroup {
 public:
  /// `guard` may be null: then grandchildren outlive a launcher that is killed.
  WorkerGroup(std::chrono::milliseconds shutdown_timeout, SessionGuard* guard);
  /// Kills whatever still runs.
  ~WorkerGroup();

  base::Result<void> start(const std::vector<WorkerSpec>& specs);

  /// Blocks until every worker has ended and nothing is left of their sessions.
  /// Signals are forwarded to the workers' sessions; a second SIGINT or SIGQUIT kills them at once.
  GroupResult supervise(SignalSource& signals);

 private:
  enum class Phase { kRunning, kStopping, kKilling, kCleaning, kDone };
  struct TeeStream;
  struct Worker;
  struct Watch;

  base::Result<void> start_worker(const WorkerSpec& spec);
  void wait_for_events(SignalSource& signals);
  void add_stream_watches(std::vector<Watch>& watches);
  int milliseconds_to_wait() const;
  void take_signal(int signal);
  void take_exit(Worker& worker);
  void advance();
  void stop(int signal);
  void kill_workers(const std::string& reason);
  void abandon_workers();
  void clean_sessions();
  void finish_output(SignalSource& signals);
  void read_stream(TeeStream& stream);
  bool all_ended() const;

  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds shutdown_timeout_;
  SessionGuard* guard_;
  Console output_;
  Console errors_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<TeeStream>> streams_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_{};
  bool leftovers_killed_ = false;
  GroupResult result_;
};

}  // namespace cohort::elastic
