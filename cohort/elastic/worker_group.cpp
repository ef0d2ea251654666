#include "cohort/elastic/worker_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cohort/base/log.h"
#include "cohort/base/process_state.h"
#include "cohort/base/text.h"
#include "cohort/elastic/worker_health.h"

namespace cohort::elastic {

using base::Error;
using base::Result;
using std::chrono::milliseconds;

namespace {

/// How long what a worker has left behind may take to end by itself, as Python's resource tracker does.
constexpr milliseconds kLeftoverTime{500};
constexpr milliseconds kScanInterval{10};
/// How often the workers' states are looked at.
constexpr milliseconds kLookInterval{1000};

}  // namespace

struct WorkerGroup::Worker {
  WorkerSpec spec;
  base::Process process;
  WorkerHealth health{};
  bool ended = false;
  bool abandoned = false;
  std::string describe() const { return fmt::format("rank {} (pid {})", spec.rank, process.pid()); }
};

WorkerGroup::WorkerGroup(GroupOptions options)
    : options_(std::move(options)), output_(options_.filters, options_.attempt_folder) {}

WorkerGroup::~WorkerGroup() = default;

Result<void> WorkerGroup::start(const std::vector<WorkerSpec>& specs) {
  const auto failed = [this](int local_rank, const Error& cause) {
    workers_.clear();
    return Error(fmt::format("cannot start local rank {}", local_rank)).caused_by(cause);
  };
  for (const WorkerSpec& spec : specs) {
    if (Result<void> begun = begin_worker(spec); !begun) return failed(spec.local_rank, begun.error());
  }
  for (const auto& worker : workers_) {
    Result<void> running = worker->process.await_program();
    if (!running) return failed(worker->spec.local_rank, running.error());
  }
  return {};
}

Result<void> WorkerGroup::begin_worker(const WorkerSpec& spec) {
  const auto stream_of = [](const StreamRoute& route) {
    if (route.tee) return base::Stream::pipe();
    if (!route.file.empty()) return base::Stream::file(route.file);
    return route.silent ? base::Stream::null() : base::Stream::inherit();
  };
  Result<base::Process> process =
      base::Process::begin({.arguments = spec.command,
                            .environment = spec.environment,
                            .standard_output = stream_of(spec.routes.output),
                            .standard_error = stream_of(spec.routes.errors),
                            .announce_fd = options_.guard ? options_.guard->announce_fd() : -1,
                            .cpus = spec.cpus});
  if (!process) return process.error();
  const std::string& prefix = spec.line_prefix;
  Result<void> added = output_.add_output(spec.routes.output, prefix, process->standard_output());
  if (added) added = output_.add_errors(spec.routes.errors, prefix, process->standard_error());
  if (!added) return added;
  workers_.push_back(std::make_unique<Worker>(Worker{spec, std::move(*process)}));
  return {};
}

GroupResult WorkerGroup::supervise(const Surroundings& surroundings) {
  while (phase_ != Phase::kDone) {
    wait_for_events(surroundings);
    look_after(surroundings);
    advance();
  }
  output_.finish(surroundings.signals);
  return result_;
}

void WorkerGroup::wait_for_events(const Surroundings& surroundings) {
  std::vector<Watch> watches;
  watches.push_back({surroundings.signals.fd(), POLLIN, [&] {
                       while (const auto signal = surroundings.signals.next()) take_signal(*signal);
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
  wait_for(watches, milliseconds_to_wait());
}

int WorkerGroup::milliseconds_to_wait() const {
  if (phase_ == Phase::kRunning) return static_cast<int>(kLookInterval.count());
  if (phase_ == Phase::kCleaning) return static_cast<int>(kScanInterval.count());
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
}

void WorkerGroup::take_signal(int signal) {
  const auto& ends = options_.stop_signals;
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
  const std::string next = all_ended() ? "" : "; stopping the other workers with SIGTERM";
  if (phase_ == Phase::kRunning) {
    base::log_error(fmt::format("{} failed with {}{}", worker.describe(), status->describe(), next));
  }
  add_failure(describe_failure(worker.spec.rank, worker.spec.local_rank, worker.process.pid(), *status,
                               worker.spec.routes.error_file, std::time(nullptr)),
              surroundings);
}

void WorkerGroup::add_failure(WorkerFailure failure, const Surroundings& surroundings) {
  result_.failures.push_back(std::move(failure));
  if (phase_ != Phase::kRunning) return;
  if (surroundings.when_failed) surroundings.when_failed(result_.failures.back());
  stop(SIGTERM);
}

// A look at what the kernel tells of each worker, now and then.
void WorkerGroup::look_after(const Surroundings& surroundings) {
  const auto now = Clock::now();
  if (phase_ != Phase::kRunning || now - last_look_ < kLookInterval) return;
  last_look_ = now;
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    const base::ProcessState state = base::read_process_state(worker->process.pid());
    if (const auto words = worker->health.observe(state.state, worker->process.pid(), now)) {
      base::log_warning(fmt::format("{} {}", worker->describe(), *words));
    }
    if (options_.stuck_timeout.count() == 0 || worker->health.stuck_time() < options_.stuck_timeout) continue;
    WorkerFailure failure{.rank = worker->spec.rank,
                          .local_rank = worker->spec.local_rank,
                          .pid = worker->process.pid(),
                          .status = {.signal = SIGKILL},
                          .time = std::time(nullptr),
                          .is_stuck = true,
                          .message = fmt::format("in uninterruptible sleep for more than {}",
                                                 base::format_duration(options_.stuck_timeout))};
    base::log_error(fmt::format("{} has been {}; stopping the workers", worker->describe(), failure.message));
    return add_failure(std::move(failure), surroundings);
  }
}

void WorkerGroup::stop(int signal) {
  phase_ = Phase::kStopping;
  deadline_ = Clock::now() + options_.shutdown_timeout;
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    worker->process.signal_session(signal);
    // A stopped worker sees no signal before it goes on.
    worker->process.signal_session(SIGCONT);
  }
}

void WorkerGroup::kill_workers(const std::string& reason) {
  phase_ = Phase::kKilling;
  deadline_ = Clock::now() + std::max(options_.shutdown_timeout, milliseconds(1000));
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    base::log_warning(fmt::format("{}: killing {} with SIGKILL", reason, worker->describe()));
    worker->process.signal_session(SIGKILL);
  }
}

// Not even SIGKILL ends a process that sleeps in the kernel, on a dead disk or device: do not wait forever.
void WorkerGroup::abandon_workers() {
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    base::log_error(fmt::format("{} did not end after SIGKILL; leaving it behind", worker->describe()));
    worker->process.abandon();
    worker->ended = worker->abandoned = true;
  }
}

bool WorkerGroup::all_ended() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->ended; });
}

void WorkerGroup::advance() {
  if (phase_ == Phase::kCleaning) return clean_sessions();
  const bool late = phase_ != Phase::kRunning && Clock::now() >= deadline_;
  if (!all_ended() && late && phase_ == Phase::kStopping) {
    kill_workers(fmt::format("no end after {}", base::format_duration(options_.shutdown_timeout)));
  } else if (!all_ended() && late && phase_ == Phase::kKilling) {
    abandon_workers();
  }
  if (!all_ended()) return;
  phase_ = Phase::kCleaning;
  deadline_ = Clock::now() + kLeftoverTime;
  clean_sessions();
}

// The workers are zombies until we end, so their sessions' numbers still are theirs.
void WorkerGroup::clean_sessions() {
  std::set<pid_t> sessions;
  for (const auto& worker : workers_) {
    if (!worker->abandoned) sessions.insert(worker->process.pid());
  }
  const std::vector<SessionMember> left = living_members(sessions);
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
