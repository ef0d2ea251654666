#include "cohort/elastic/agent/launch.h"

#include <csignal>

#include "cohort/base/log/log.h"
#include "cohort/elastic/agent/agent.h"
#include "cohort/elastic/processes/orphans.h"
#include "cohort/snapshot/snapshot_server.h"
#include "cohort/store/tcp/token.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

Result<std::optional<WatchdogTimer>> make_watchdog(const LaunchPlan& plan) {
  if (!plan.timer_file) return std::optional<WatchdogTimer>();
  Result<WatchdogTimer> watchdog = WatchdogTimer::create(*plan.timer_file);
  if (!watchdog) return watchdog.error();
  return std::optional<WatchdogTimer>(std::move(*watchdog));
}

/// Returns null with a warning if there can be no snapshot server: the job goes on without snapshots.
std::unique_ptr<snapshot::SnapshotServer> make_snapshot_server(const LaunchPlan& plan) {
  const Result<std::string> token = store::find_token(plan.rendezvous.token_file);
  if (!token) return nullptr;  // the rendezvous reports the error
  Result<std::unique_ptr<snapshot::SnapshotServer>> snapshot_server = snapshot::SnapshotServer::start(*token);
  if (snapshot_server) return std::move(*snapshot_server);
  base::log_warning(Error("workers cannot keep snapshots in memory").caused_by(snapshot_server.error()).describe());
  return nullptr;
}

Result<int> run_agent(const LaunchPlan& plan, const LogFolder& folder, Consoles& consoles) {
  // A write of the launcher to a closed pipe is an error that it handles, and must not end it. Workers start with the default
  // again.
  (void)::signal(SIGPIPE, SIG_IGN);
  // The guard is a fork, and signals are blocked for all threads, so both come before the rendezvous's thread.
  Result<std::optional<WatchdogTimer>> watchdog = make_watchdog(plan);
  if (!watchdog) return watchdog.error();
  const std::string mark = make_agent_mark();
  Result<SessionGuard> guard = SessionGuard::start(mark, [&folder, &watchdog] {
    if (*watchdog) (*watchdog)->remove_files();
    remove_if_unused(folder);
  });
  if (!guard) return guard.error();
  const Orphans orphans = Orphans::adopt();
  std::vector<int> heard = plan.signals;
  heard.insert(heard.end(), {SIGUSR1, SIGUSR2});
  Result<SignalSource> signals = SignalSource::create(heard);
  if (!signals) return signals.error();
  WatchdogTimer* const timer = *watchdog ? &**watchdog : nullptr;
  // Its thread must not receive signals either.
  const std::unique_ptr<snapshot::SnapshotServer> snapshot_server = make_snapshot_server(plan);
  const AgentTools tools{.folder = folder,
                         .guard = *guard,
                         .mark = mark,
                         .orphans = orphans,
                         .signals = *signals,
                         .consoles = consoles,
                         .watchdog = timer,
                         .snapshot_server = snapshot_server.get()};
  Result<int> code = Agent(plan, tools).run();
  // The job is over: a late signal changes neither the exit code nor the cleanup.
  for (const int signal : heard) (void)::signal(signal, SIG_IGN);
  return code;
}

}  // namespace

Result<int> launch(const LaunchPlan& plan, Consoles& consoles) {
  consoles.patience = plan.shutdown_timeout;
  if (Result<std::vector<std::string>> command = worker_command(plan.program, 0); !command) return command.error();
  if (!plan.threads_note.empty()) base::log_warning(plan.threads_note);
  const Result<LogFolder> folder = create_log_folder(plan.logs.folder, plan.rendezvous.run_id);
  if (!folder) return no_log_folder(plan.logs.folder, folder.error());
  Result<int> code = run_agent(plan, *folder, consoles);
  remove_if_unused(*folder);
  return code;
}

}  // namespace cohort::elastic
