#include "cohort/elastic/worker_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "cohort/base/log.h"
#include "cohort/base/text.h"

namespace cohort::elastic {

using base::Error;
using base::Result;
using std::chrono::milliseconds;

namespace {

/// How long what a worker has left behind may take to end by itself, as Python's resource tracker does.
constexpr milliseconds kLeftoverTime{500};
constexpr milliseconds kScanInterval{10};

}  // namespace

/// One stream of one worker that goes to a file and to our own stream.
struct WorkerGroup::TeeStream {
  base::Fd pipe;
  base::Fd file;
  PrefixedLines lines;
  Console* console;
};

struct WorkerGroup::Worker {
  WorkerSpec spec;
  base::Process process;
  bool ended = false;
  bool abandoned = false;
  std::string describe() const { return fmt::format("rank {} (pid {})", spec.rank, process.pid()); }
};

struct WorkerGroup::Watch {
  int fd;
  short events;
  std::function<void()> ready;
};

WorkerGroup::WorkerGroup(milliseconds shutdown_timeout, SessionGuard* guard)
    : shutdown_timeout_(shutdown_timeout), guard_(guard), output_(STDOUT_FILENO), errors_(STDERR_FILENO) {}

WorkerGroup::~WorkerGroup() = default;

Result<void> WorkerGroup::start(const std::vector<WorkerSpec>& specs) {
  for (const WorkerSpec& spec : specs) {
    if (Result<void> started = start_worker(spec); !started) {
      workers_.clear();
      return Error(fmt::format("cannot start local rank {}", spec.local_rank)).caused_by(started.error());
    }
  }
  return {};
}

Result<void> WorkerGroup::start_worker(const WorkerSpec& spec) {
  const auto stream_of = [](const StreamRoute& route) {
    if (route.tee) return base::Stream::pipe();
    if (!route.file.empty()) return base::Stream::file(route.file);
    return route.silent ? base::Stream::null() : base::Stream::inherit();
  };
  Result<base::Process> process = base::Process::start({.arguments = spec.command,
                                                        .environment = spec.environment,
                                                        .standard_output = stream_of(spec.routes.output),
                                                        .standard_error = stream_of(spec.routes.errors),
                                                        .announce_fd = guard_ ? guard_->announce_fd() : -1});
  if (!process) return process.error();
  const auto add_tee = [&](const StreamRoute& route, base::Fd& pipe, Console& console) -> Result<void> {
    if (!route.tee) return {};
    Result<base::Fd> file = base::open_for_writing(route.file);
    if (!file) return file.error();
    streams_.push_back(std::make_unique<TeeStream>(
        TeeStream{std::move(pipe), std::move(*file), PrefixedLines(spec.line_prefix), &console}));
    return {};
  };
  if (Result<void> added = add_tee(spec.routes.output, process->standard_output(), output_); !added) return added;
  if (Result<void> added = add_tee(spec.routes.errors, process->standard_error(), errors_); !added) return added;
  workers_.push_back(std::make_unique<Worker>(Worker{spec, std::move(*process)}));
  return {};
}

GroupResult WorkerGroup::supervise(SignalSource& signals) {
  while (phase_ != Phase::kDone) {
    wait_for_events(signals);
    advance();
  }
  finish_output(signals);
  return result_;
}

void WorkerGroup::wait_for_events(SignalSource& signals) {
  std::vector<Watch> watches;
  watches.push_back({signals.fd(), POLLIN, [&] {
                       while (const auto signal = signals.next()) take_signal(*signal);
                     }});
  for (const auto& worker : workers_) {
    if (!worker->ended) watches.push_back({worker->process.pidfd(), POLLIN, [this, &worker] { take_exit(*worker); }});
  }
  add_stream_watches(watches);
  std::vector<pollfd> entries;
  for (const Watch& watch : watches) entries.push_back({watch.fd, watch.events, 0});
  if (::poll(entries.data(), entries.size(), milliseconds_to_wait()) <= 0) return;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents) watches[i].ready();
  }
}

void WorkerGroup::add_stream_watches(std::vector<Watch>& watches) {
  for (const auto& stream : streams_) {
    if (stream->pipe && !stream->console->is_full()) {
      watches.push_back({stream->pipe.get(), POLLIN, [this, &stream] { read_stream(*stream); }});
    }
  }
  for (Console* console : {&output_, &errors_}) {
    if (console->has_pending()) watches.push_back({console->fd(), POLLOUT, [console] { console->write_some(); }});
  }
}

int WorkerGroup::milliseconds_to_wait() const {
  if (phase_ == Phase::kRunning) return -1;
  if (phase_ == Phase::kCleaning) return static_cast<int>(kScanInterval.count());
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
}

void WorkerGroup::take_signal(int signal) {
  const bool impatient = signal == SIGINT || signal == SIGQUIT;
  if (phase_ == Phase::kRunning) {
    result_.signal = signal;
    base::log_warning(fmt::format("received {}, forwarding it to the workers", base::signal_name(signal)));
    stop(signal);
  } else if (impatient && phase_ == Phase::kStopping) {
    kill_workers(fmt::format("received {} while stopping", base::signal_name(signal)));
  }
}

void WorkerGroup::take_exit(Worker& worker) {
  const auto status = worker.process.poll();
  if (!status) return;
  worker.ended = true;
  if (status->ok()) return;
  result_.failures.push_back(describe_failure(worker.spec.rank, worker.spec.local_rank, worker.process.pid(), *status,
                                              worker.spec.routes.error_file, std::time(nullptr)));
  if (phase_ != Phase::kRunning) return;
  const std::string next = all_ended() ? "" : "; stopping the other workers with SIGTERM";
  base::log_error(fmt::format("{} failed with {}{}", worker.describe(), status->describe(), next));
  stop(SIGTERM);
}

void WorkerGroup::stop(int signal) {
  phase_ = Phase::kStopping;
  deadline_ = Clock::now() + shutdown_timeout_;
  for (const auto& worker : workers_) {
    if (worker->ended) continue;
    worker->process.signal_session(signal);
    // A stopped worker sees no signal before it goes on.
    worker->process.signal_session(SIGCONT);
  }
}

void WorkerGroup::kill_workers(const std::string& reason) {
  phase_ = Phase::kKilling;
  deadline_ = Clock::now() + std::max(shutdown_timeout_, milliseconds(1000));
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
    kill_workers(fmt::format("no end after {}", base::format_duration(shutdown_timeout_)));
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

void WorkerGroup::read_stream(TeeStream& stream) {
  char buffer[65536];
  const ssize_t count = ::read(stream.pipe.get(), buffer, sizeof buffer);
  if (count < 0 && errno == EINTR) return;
  if (count <= 0) {
    stream.console->append(stream.lines.finish());
    stream.pipe.reset();
    return;
  }
  const std::string_view chunk(buffer, static_cast<size_t>(count));
  if (stream.file) {
    if (const Result<void> written = base::write_all(stream.file.get(), chunk); !written) {
      base::log_warning(Error("a worker's log file is incomplete").caused_by(written.error()).describe());
      stream.file.reset();
    }
  }
  stream.console->append(stream.lines.append(chunk));
}

// Reads what is in the pipes now: a process that left its session may hold one open forever.
void WorkerGroup::finish_output(SignalSource& signals) {
  for (const auto& stream : streams_) {
    for (pollfd entry{stream->pipe.get(), POLLIN, 0}; stream->pipe && ::poll(&entry, 1, 0) > 0;) read_stream(*stream);
    stream->console->append(stream->lines.finish());
  }
  for (Console* console : {&output_, &errors_}) {
    while (console->has_pending()) {
      pollfd entries[2] = {{console->fd(), POLLOUT, 0}, {signals.fd(), POLLIN, 0}};
      if (::poll(entries, 2, -1) < 0) continue;
      if (entries[1].revents && signals.next()) {
        console->drop_pending();
      } else if (entries[0].revents) {
        console->write_some();
      }
    }
  }
}

}  // namespace cohort::elastic
