#include "cohort/elastic/workers/worker_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "cohort/base/log/log.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/process_state.h"
#include "cohort/base/text/text.h"
#include "cohort/elastic/workers/worker_health.h"

namespace cohort::elastic {

using base::Error;
using base::Result;
using std::chrono::milliseconds;

namespace {

/// The time that processes left behind by workers have to end by themselves, as Python's resource tracker does.
constexpr milliseconds kLeftoverTime{500};
constexpr milliseconds kScanInterval{10};
/// The interval at which the workers' states are checked.
constexpr milliseconds kLookInterval{1000};

/// A worker may end by the signal, in its own way after it has received the signal, or because the signal has ended its child.
bool may_be_why(const Overrun& overrun, pid_t worker, const base::ExitStatus& status) {
  if (overrun.signal == 0) return false;
  return status.signal == 0 || status.signal == overrun.signal || overrun.pid != worker;
}

}  // namespace

struct WorkerGroup::Worker {
  WorkerSpec spec;
  base::Process process;
  WorkerHealth health{};
  bool ended = false;
  /// The last block of the worker or its children that overran its timer.
  std::optional<Overrun> overrun{};
  std::string describe() const { return fmt::format("rank {} (pid {})", spec.rank, process.pid()); }
};

WorkerGroup::WorkerGroup(const LaunchPlan& plan, const AgentTools& tools, const std::string& attempt_folder)
    : plan_(plan), tools_(tools), output_(plan.logs.filters, attempt_folder, tools.consoles) {}

WorkerGroup::~WorkerGroup() = default;

Result<bool> WorkerGroup::start(const std::vector<WorkerSpec>& specs, const std::function<bool()>& is_stopped) {
  const auto failed = [](const WorkerSpec& spec, const Error& cause) {
    return Error(fmt::format("cannot start local rank {}", spec.local_rank)).caused_by(cause);
  };
  std::vector<base::ProcessOptions> options;
  for (const WorkerSpec& spec : specs) options.push_back(process_options(spec));
  size_t index = 0;
  Result<std::vector<base::Process>> processes = base::Process::start_together(options, is_stopped, &index);
  if (!processes) return failed(specs[index], processes.error());
  if (processes->size() < specs.size()) return false;
  for (index = 0; index < specs.size(); ++index) {
    const WorkerSpec& spec = specs[index];
    base::Process& process = (*processes)[index];
    Result<void> added = output_.add_output(spec.routes.output, spec.line_prefix, process.standard_output());
    if (added) added = output_.add_errors(spec.routes.errors, spec.line_prefix, process.standard_error());
    if (!added) {
      workers_.clear();
      return failed(spec, added.error());
    }
    workers_.push_back(std::make_unique<Worker>(Worker{spec, std::move(process)}));
  }
  return true;
}

base::ProcessOptions WorkerGroup::process_options(const WorkerSpec& spec) const {
  const auto stream_of = [](const StreamRoute& route) {
    if (route.tee) return base::Stream::pipe();
    if (!route.file.empty()) return base::Stream::file(route.file);
    return route.silent ? base::Stream::null() : base::Stream::inherit();
  };
  return {.arguments = spec.command,
          .environment = spec.environment,
          .standard_output = stream_of(spec.routes.output),
          .standard_error = stream_of(spec.routes.errors),
          .announce_fd = tools_.guard.announce_fd(),
          .cpus = spec.cpus};
}

GroupResult WorkerGroup::supervise(const Surroundings& surroundings) {
  while (phase_ != Phase::kDone) {
    wait_for_events(surroundings);
    end_overruns(surroundings);
    look_after(surroundings);
    advance();
  }
  output_.finish();
  if (stopped_at_) result_.stop_time = std::chrono::duration_cast<milliseconds>(Clock::now() - *stopped_at_);
  return result_;
}

void WorkerGroup::wait_for_events(const Surroundings& surroundings) {
  std::vector<Watch> watches;
  watches.push_back({tools_.signals.fd(), POLLIN, [&] {
                       while (const auto signal = tools_.signals.next()) take_signal(*signal);
                     }});
  if (surroundings.news_fd >= 0) {
    watches.push_back({surroundings.news_fd, POLLIN, [&] { take_news(surroundings); }});
  }
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    watches.push_back(
        {worker->process.pidfd(), POLLIN, [this, &worker, &surroundings] { take_exit(*worker, surroundings); }});
  }
  output_.add_watches(watches);
  if (tools_.watchdog)
    watches.push_back({tools_.watchdog->fd(), POLLIN, [this] { tools_.watchdog->read(running_pids()); }});
  if (surroundings.add_watches) surroundings.add_watches(watches);
  wait_for(watches, milliseconds_to_wait());
}

int WorkerGroup::milliseconds_to_wait() const {
  if (phase_ == Phase::kRunning) {
    const auto expiration = tools_.watchdog ? tools_.watchdog->next_expiration() : std::nullopt;
    const double left = expiration ? std::ceil((*expiration - seconds_since_1970()) * 1000) : 1e9;
    return static_cast<int>(std::clamp(left, 0.0, static_cast<double>(kLookInterval.count())));
  }
  if (phase_ == Phase::kCleaning) return static_cast<int>(kScanInterval.count());
  return base::milliseconds_until(deadline_);
}

void WorkerGroup::take_signal(int signal) {
  const auto& ends = plan_.signals;
  if (std::find(ends.begin(), ends.end(), signal) == ends.end()) return pass_on(signal);
  const bool impatient = signal == SIGINT || signal == SIGQUIT;
  const bool is_first = !result_.signal;
  if (is_first) result_.signal = signal;
  if (phase_ == Phase::kRunning) {
    base::log_warning(fmt::format("received {}, forwarding it to the workers", base::signal_name(signal)));
    stop(signal);
  } else if (impatient && phase_ == Phase::kStopping) {
    kill_workers(fmt::format("received {} while stopping", base::signal_name(signal)));
  } else if (is_first) {
    base::log_warning(fmt::format("received {}; the workers are being stopped already", base::signal_name(signal)));
  }
}

void WorkerGroup::pass_on(int signal) {
  base::log_info(fmt::format("received {}, passing it on to the workers", base::signal_name(signal)));
  for (const auto& worker : workers_) {
    if (!worker->ended) worker->process.signal(signal);
  }
}

void WorkerGroup::take_news(const Surroundings& surroundings) {
  const std::optional<std::string> why = surroundings.read_news();
  if (!why || phase_ != Phase::kRunning) return;
  result_.was_stopped = true;
  base::log_warning(fmt::format("{}; stopping this node's workers", *why));
  stop(SIGTERM);
}

void WorkerGroup::take_exit(Worker& worker, const Surroundings& surroundings) {
  const auto status = worker.process.poll();
  if (!status) return;
  worker.ended = true;
  if (status->ok()) return;
  WorkerFailure failure = describe_failure(worker.spec.rank, worker.spec.local_rank, worker.process.pid(), *status,
                                           worker.spec.routes.error_file, std::time(nullptr));
  if (worker.overrun && may_be_why(*worker.overrun, worker.process.pid(), *status)) {
    add_overrun(failure, worker.overrun->describe());
  }
  const std::string why = failure.overrun.empty() ? "" : ": " + failure.overrun;
  const std::string next = all_ended() ? "" : "; stopping the other workers with SIGTERM";
  if (phase_ == Phase::kRunning) {
    base::log_error(fmt::format("{} failed with {}{}{}", worker.describe(), status->describe(), why, next));
  }
  add_failure(std::move(failure), surroundings);
}

void WorkerGroup::add_failure(WorkerFailure failure, const Surroundings& surroundings) {
  result_.failures.push_back(std::move(failure));
  if (phase_ != Phase::kRunning) return;
  if (surroundings.when_failed) surroundings.when_failed(result_.failures.back());
  stop(SIGTERM);
}

// Checks the kernel's state of each worker from time to time.
void WorkerGroup::look_after(const Surroundings& surroundings) {
  const auto now = Clock::now();
  if (phase_ != Phase::kRunning || now - last_look_ < kLookInterval) return;
  last_look_ = now;
  (void)tools_.orphans.find(pids());  // reaps processes that have ended
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    const base::ProcessState state = base::read_process_state(worker->process.pid());
    if (const auto words = worker->health.observe(state.state, worker->process.pid(), now)) {
      base::log_warning(fmt::format("{} {}", worker->describe(), *words));
    }
    if (plan_.stuck_timeout.count() == 0 || worker->health.stuck_time() < plan_.stuck_timeout) continue;
    WorkerFailure failure{.rank = worker->spec.rank,
                          .local_rank = worker->spec.local_rank,
                          .pid = worker->process.pid(),
                          .status = {.signal = SIGKILL},
                          .time = std::time(nullptr),
                          .is_stuck = true,
                          .message = fmt::format("in uninterruptible sleep for more than {}",
                                                 base::format_duration(plan_.stuck_timeout))};
    base::log_error(fmt::format("{} has been {}; stopping the workers", worker->describe(), failure.message));
    return add_failure(std::move(failure), surroundings);
  }
}

// Timers of workers that are being stopped do not matter any more.
void WorkerGroup::end_overruns(const Surroundings& surroundings) {
  if (!tools_.watchdog || phase_ != Phase::kRunning) return;
  // A release may have arrived just now, or long ago if this process did not run.
  if (tools_.watchdog->next_expiration().value_or(HUGE_VAL) > seconds_since_1970()) return;
  tools_.watchdog->read(running_pids());
  for (const Overrun& overrun : tools_.watchdog->end_overruns(seconds_since_1970(), running_pids())) {
    const auto found = std::find_if(workers_.begin(), workers_.end(),
                                    [&](const auto& worker) { return worker->process.pid() == overrun.worker; });
    if (found == workers_.end()) continue;
    Worker& worker = **found;
    const std::string whose = overrun.pid == overrun.worker ? "" : fmt::format(" (in its process {})", overrun.pid);
    const std::string what =
        overrun.signal == 0 ? "it asked for no signal" : "ending the process with " + base::signal_name(overrun.signal);
    base::log_error(fmt::format("{}: {}{}; {}", worker.describe(), overrun.describe(), whose, what));
    worker.overrun = overrun;
    if (surroundings.when_overrun) surroundings.when_overrun(overrun);
  }
}

std::set<pid_t> WorkerGroup::pids() const {
  std::set<pid_t> pids;
  for (const auto& worker : workers_) pids.insert(worker->process.pid());
  return pids;
}

std::set<pid_t> WorkerGroup::running_pids() const {
  std::set<pid_t> pids;
  for (const auto& worker : workers_) {
    if (!worker->ended) pids.insert(worker->process.pid());
  }
  return pids;
}

void WorkerGroup::stop(int signal) {
  stopped_at_ = Clock::now();
  phase_ = Phase::kStopping;
  deadline_ = base::deadline_after(plan_.shutdown_timeout);
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    worker->process.signal_group(signal);
    // A stopped worker handles no signal before it continues.
    worker->process.signal_group(SIGCONT);
  }
}

void WorkerGroup::kill_workers(const std::string& reason) {
  phase_ = Phase::kKilling;
  deadline_ = base::deadline_after(std::max(plan_.shutdown_timeout, milliseconds(1000)));
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    base::log_warning(fmt::format("{}: killing {} with SIGKILL", reason, worker->describe()));
    worker->process.signal_group(SIGKILL);
  }
}

// Not even SIGKILL ends a process that sleeps in the kernel, on a dead disk or device, so this does not wait for it.
void WorkerGroup::abandon_workers() {
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    base::log_error(fmt::format("{} did not end after SIGKILL; leaving it behind", worker->describe()));
    worker->process.abandon();
    worker->ended = true;
  }
}

const char* WorkerGroup::state() const {
  switch (phase_) {
    case Phase::kRunning:
      return "running";
    case Phase::kStopping:
      return "stopping";
    case Phase::kKilling:
      return "killing";
    default:
      return "cleaning";
  }
}

int WorkerGroup::num_running() const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [](const auto& worker) { return !worker->ended; }));
}

bool WorkerGroup::all_ended() const { return num_running() == 0; }

void WorkerGroup::advance() {
  if (phase_ == Phase::kCleaning) return clean_sessions();
  const bool late = phase_ != Phase::kRunning && Clock::now() >= deadline_;
  if (!all_ended() && late && phase_ == Phase::kStopping) {
    kill_workers(fmt::format("no end after {}", base::format_duration(plan_.shutdown_timeout)));
  } else if (!all_ended() && late && phase_ == Phase::kKilling) {
    abandon_workers();
  }
  if (!all_ended()) return;
  phase_ = Phase::kCleaning;
  deadline_ = Clock::now() + kLeftoverTime;
  clean_sessions();
}

// The workers are zombies until this process ends, so their session's number still belongs to them. Both searches are needed:
// some kernels do not list children, and a list that is read while a child ends may miss a living one.
std::vector<SessionMember> WorkerGroup::left_behind() const {
  const std::set<pid_t> workers = pids();
  std::set<pid_t> sessions;
  for (const auto& worker : workers_) sessions.insert(worker->process.session());
  std::vector<SessionMember> left = living_members(sessions);
  // An abandoned worker still lives, but is not a process left behind by a worker.
  std::erase_if(left, [&](const SessionMember& member) { return workers.contains(member.pid); });
  for (SessionMember& orphan : tools_.orphans.find(workers)) {
    if (!sessions.contains(orphan.session)) left.push_back(std::move(orphan));
  }
  return left;
}

void WorkerGroup::clean_sessions() {
  const std::vector<SessionMember> left = left_behind();
  const bool late = Clock::now() >= deadline_;
  if (left.empty() || (late && leftovers_killed_)) {
    phase_ = Phase::kDone;
  } else if (late) {
    leftovers_killed_ = true;
    deadline_ = Clock::now() + kLeftoverTime;
    for (const SessionMember& member : left) {
      base::log_warning(fmt::format("killing process {} ({}), left behind by a worker", member.pid, member.name));
      ::kill(member.pid, SIGKILL);
    }
  }
}

}  // namespace cohort::elastic
