/// The agent of one node: takes part in the rounds of a rendezvous, runs this node's workers in each, and answers for them.
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
  /// Both arguments, and what `tools` refers to, must outlive the agent.
  Agent(const LaunchPlan& plan, const AgentTools& tools) : plan_(plan), tools_(tools), events_(plan.logs_events) {}

  /// Blocks until the job is over for this node and returns the exit code: 0 if every worker of every node ended with 0, else
  /// 1. What failed is on stderr then. Errors: the rendezvous could not be joined, or a worker not be started.
  base::Result<int> run();

 private:
  using Clock = std::chrono::steady_clock;

  base::Result<int> run_rounds();
  void answer_health_checks();
  HealthState health() const;
  /// What it waits for at all times beside its signals: health checks, and streams that take text again.
  void add_watches(std::vector<Watch>& watches);
  void begin(const char* state);
  /// Logs how long it took since begin().
  void end_phase(const char* phase);

  /// Waits for the next event of the rendezvous. Nothing: a signal came first, and is in stop_signal_.
  std::optional<rendezvous::Event> next_event();
  /// True if one came that ends the job; the others are for workers, and none run.
  bool take_signal();
  /// Each returns the exit code once there is one.
  base::Result<std::optional<int>> take(const rendezvous::Event& event);
  base::Result<std::optional<int>> run_round(const rendezvous::Round& round);
  base::Result<std::optional<int>> end_round(const rendezvous::RoundOver& over);
  base::Result<GroupResult> run_workers(const rendezvous::Round& round);
  /// Where this round's workers find the snapshots; "": nowhere.
  std::string open_vault(const rendezvous::Round& round);
  /// False: a signal came first, and none is left.
  base::Result<bool> start_workers(WorkerGroup& group, const std::vector<WorkerSpec>& specs);
  GroupResult supervise(WorkerGroup& group);
  void report_failure(const WorkerFailure& failure);
  /// Sleeps before a restart; false if a signal ended it.
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
  /// What it does now, since when.
  const char* state_ = "rendezvous";
  Clock::time_point state_since_{};
  /// While workers are there.
  const WorkerGroup* group_ = nullptr;
  std::optional<HealthCheck> health_check_;
  /// What came while the workers ran.
  std::optional<rendezvous::Event> news_;
  std::optional<int> stop_signal_;
  /// Of the last round, on this node.
  std::vector<WorkerFailure> failures_;
  RepeatedFailure repeated_failure_;
  /// A worker of this node was the one that failed.
  bool is_cause_ = false;
};

}  // namespace cohort::elastic
