/// The workers of one node in one round: starts, watches and ends them together.
///
/// One thread polls everything: exits with pidfds, signals with a signalfd, output with pipes, news of the job with a descriptor.
/// The first worker that fails ends the others: SIGTERM to their process groups, and SIGKILL after the timeout.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/process/process.h"
#include "cohort/elastic/output/worker_output.h"
#include "cohort/elastic/plan/launch_plan.h"
#include "cohort/elastic/plan/worker_spec.h"
#include "cohort/elastic/report/failure_report.h"
#include "cohort/elastic/workers/agent_tools.h"

namespace cohort::elastic {

/// Callbacks and events of a group while its workers run.
struct Surroundings {
  /// Readable when there is news. -1 means that there is never any.
  int news_fd = -1;
  /// Reads the news. A text says why the workers must stop now.
  std::function<std::optional<std::string>()> read_news;
  /// Called for the first worker that fails by itself, before the others are stopped.
  std::function<void(const WorkerFailure& failure)> when_failed;
  /// Called for a block that overran its timer; its process has already been sent the signal.
  std::function<void(const Overrun& overrun)> when_overrun;
  /// Adds descriptors that the caller always waits for.
  std::function<void(std::vector<Watch>& watches)> add_watches;
};

struct GroupResult {
  /// The first signal that ended the group, even if something else stopped the workers before.
  std::optional<int> signal;
  /// Whether news ended it.
  bool was_stopped = false;
  /// The time from the first signal to the workers until none of their processes was left. Absent if they ended by themselves.
  std::optional<std::chrono::milliseconds> stop_time;
  /// In the order in which they were noticed, including workers that were stopped because of the first.
  std::vector<WorkerFailure> failures;
  bool ok() const { return !signal && !was_stopped && failures.empty(); }
};

class WorkerGroup {
 public:
  /// `plan` and the objects that `tools` refers to must outlive the group.
  WorkerGroup(const LaunchPlan& plan, const AgentTools& tools, const std::string& attempt_folder);
  /// Kills all that still runs.
  ~WorkerGroup();

  /// Starts all workers side by side in one session and returns when each runs its program. Returns false if `is_stopped`, which
  /// is asked before each start, returned true. After that, or an error, no worker is left.
  base::Result<bool> start(const std::vector<WorkerSpec>& specs, const std::function<bool()>& is_stopped);

  /// Blocks until every worker has ended and no process of their session is left. Forwards signals to the workers' process
  /// groups; a second SIGINT or SIGQUIT kills them at once.
  GroupResult supervise(const Surroundings& surroundings);

  /// The number of workers that have not ended.
  int num_running() const;
  /// Returns "running", "stopping", "killing" or "cleaning".
  const char* state() const;
  /// Whether workers have not ended after SIGKILL.
  bool is_stuck() const { return phase_ == Phase::kKilling; }

 private:
  enum class Phase { kRunning, kStopping, kKilling, kCleaning, kDone };
  struct Worker;

  base::ProcessOptions process_options(const WorkerSpec& spec) const;
  void wait_for_events(const Surroundings& surroundings);
  int milliseconds_to_wait() const;
  void take_signal(int signal);
  void pass_on(int signal);
  void take_news(const Surroundings& surroundings);
  void take_exit(Worker& worker, const Surroundings& surroundings);
  void look_after(const Surroundings& surroundings);
  void end_overruns(const Surroundings& surroundings);
  /// The pids of all workers, and of those that have not ended.
  std::set<pid_t> pids() const;
  std::set<pid_t> running_pids() const;
  std::vector<SessionMember> left_behind() const;
  void add_failure(WorkerFailure failure, const Surroundings& surroundings);
  void advance();
  void stop(int signal);
  void kill_workers(const std::string& reason);
  void abandon_workers();
  void clean_sessions();
  bool all_ended() const;

  using Clock = std::chrono::steady_clock;
  const LaunchPlan& plan_;
  const AgentTools tools_;
  WorkerOutput output_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_{};
  Clock::time_point last_look_{};
  std::optional<Clock::time_point> stopped_at_;
  bool leftovers_killed_ = false;
  GroupResult result_;
};

}  // namespace cohort::elastic
