/// --event-log-handler console: one JSON line per event on stderr, with the keys of torch/distributed/elastic/events.
#pragma once

#include <chrono>
#include <string>

#include "cohort/elastic/processes/watchdog_timer.h"
#include "cohort/elastic/report/failure_report.h"
#include "cohort/rendezvous/rendezvous.h"

namespace cohort::elastic {

class EventLog {
 public:
  /// Logs nothing unless `is_on`.
  explicit EventLog(bool is_on) : is_on_(is_on) {}

  void workers_started(const rendezvous::Round& round, const rendezvous::Settings& settings) const;
  void workers_succeeded(const rendezvous::Round& round, const rendezvous::Settings& settings) const;
  void worker_ended(const rendezvous::Round& round, const rendezvous::Settings& settings,
                    const WorkerFailure& failure) const;
  void agent_ended(const rendezvous::Round& round, const rendezvous::Settings& settings, bool is_success,
                   const std::string& why) const;

  /// Logs the end of a phase of the agent, with "duration_ms": "rendezvous", "start_workers", "run_workers", "stop_workers" or
  /// "exit_barrier". torchelastic's metrics measure these phases (agent/server/api.py, @prof).
  void phase_ended(const rendezvous::Round& round, const rendezvous::Settings& settings, const std::string& phase,
                   std::chrono::steady_clock::duration duration) const;
  /// Logs "timer expired", then "kill worker process" if a signal was sent.
  void block_overran(const rendezvous::Round& round, const rendezvous::Settings& settings,
                     const Overrun& overrun) const;

 private:
  struct Event;
  void write(const rendezvous::Round& round, const rendezvous::Settings& settings, const Event& event) const;

  bool is_on_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace cohort::elastic
