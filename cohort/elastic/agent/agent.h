/// The agent of one node: takes part in the rounds of a rendezvous, runs this node's workers in each, and reports their results.
///
/// Semantics follow torch/distributed/elastic/agent/server/api.py of PyTorch 2.13, with one thread and no polling.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/elastic/agent/launch.h"
#include "cohort/elastic/report/event_log.h"
#include "cohort/elastic/report/health_check.h"
#include "cohort/elastic/report/repeated_failure.h"
#include "cohort/elastic/workers/agent_tools.h"
#include "cohort/elastic/workers/worker_group.h"
#include "cohort/rendezvous/rendezvous.h"

namespace cohort::elastic {

class Agent {
 public:
  /// `plan`, `tools`, and the objects that `tools` refers to must outlive the agent.
  Agent(const LaunchPlan& plan, const AgentTools& tools) : plan_(plan), tools_(tools), events_(plan.logs_events) {}

  /// Blocks until the job is over for this node and returns the exit code: 0 if every worker of every node ended with 0, else 1.
  /// The failure has then been printed to stderr. Errors: the rendezvous could not be joined, or a worker could not be started.
  base::Result<int> run();

 private:
  using Clock = std::chrono::steady_clock;

  base::Result<int> run_rounds();
  void answer_health_checks();
  HealthState health() const;
  /// Adds the descriptors that it always waits for beside its signals: health checks, and streams that can take more text.
  void add_watches(std::vector<Watch>& watches);
  void begin(const char* state);
  /// Logs the time since begin().
  void end_phase(const char* phase);

  /// Waits for the next event of the rendezvous. Returns nothing if a signal came first, which is then in stop_signal_.
  std::optional<rendezvous::Event> next_event();
  /// Returns true if a signal came that ends the job. Other signals are for workers, and none run now.
  bool take_signal();
  /// Each of these returns the exit code once there is one.
  base::Result<std::optional<int>> take(const rendezvous::Event& event);
  base::Result<std::optional<int>> run_round(const rendezvous::Round& round);
  base::Result<std::optional<int>> end_round(const rendezvous::RoundOver& over);
  base::Result<GroupResult> run_workers(const rendezvous::Round& round);
  /// Returns the place where this round's workers find the snapshot server; "" if there is none.
  std::string open_snapshot_server(const rendezvous::Round& round);
  /// Returns false if a signal came first; then no worker is left.
  base::Result<bool> start_workers(WorkerGroup& group, const std::vector<WorkerSpec>& specs);
  GroupResult supervise(WorkerGroup& group);
  void report_failure(const WorkerFailure& failure);
  /// Sleeps before a restart. Returns false if a signal ended the sleep.
  bool back_off();
  int stopped();
  int failed(const rendezvous::RoundOver& over);
  void print_failures() const;

  const LaunchPlan& plan_;
  const AgentTools tools_;
  EventLog events_;
  std::unique_ptr<rendezvous::Rendezvous> rendezvous_;
  rendezvous::Round round_;
  int attempt_ = 0;
  Clock::time_point started_at_{};
  /// The current state, and the time at which it began.
  const char* state_ = "rendezvous";
  Clock::time_point state_since_{};
  /// The group while there are workers, else null.
  const WorkerGroup* group_ = nullptr;
  std::optional<HealthCheck> health_check_;
  /// An event that came while the workers ran.
  std::optional<rendezvous::Event> news_;
  std::optional<int> stop_signal_;
  /// The failures of the last round on this node.
  std::vector<WorkerFailure> failures_;
  RepeatedFailure repeated_failure_;
  /// Whether a worker of this node failed first.
  bool is_cause_ = false;
};

}  // namespace cohort::elastic
