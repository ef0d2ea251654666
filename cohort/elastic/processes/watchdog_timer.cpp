#include "cohort/elastic/processes/watchdog_timer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/system/env.h"
#include "cohort/base/system/process_state.h"
#include "cohort/base/text/text.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

/// PIPE_BUF: the size that clients can write in one piece.
constexpr size_t kMaxLine = 4096;
constexpr size_t kMaxTimers = 4096;
/// The number of reads before others have their turn.
constexpr int kMaxReads = 16;
/// The limit for a text from outside in a message.
constexpr size_t kMaxShown = 200;

std::string printable(std::string_view text) {
  std::string shown(text.substr(0, kMaxShown));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > kMaxShown ? shown + "..." : shown;
}

Error cannot_make(const std::string& path, int number) {
  return Error(fmt::format("cannot make the watchdog timers' named pipe \"{}\": {}", path, base::errno_text(number)))
      .with_hint("set TORCHELASTIC_TIMER_FILE to a path where this user may create files, or leave it unset");
}

bool has_reader(const std::string& path) {
  return static_cast<bool>(base::Fd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW)));
}

/// Removes the former pipe. Returns false if another launcher still reads it.
Result<bool> remove_former(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT ? Result<bool>(true) : cannot_make(path, errno);
  if (!S_ISFIFO(info.st_mode) || info.st_uid != ::geteuid()) {
    return Error(fmt::format("cannot make the watchdog timers' named pipe \"{}\": something else is there", path))
        .with_hint("give TORCHELASTIC_TIMER_FILE a path that is free, or leave it unset");
  }
  if (has_reader(path)) return false;
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return cannot_make(path, errno);
  return true;
}

/// Opens the pipe for reading, and also for writing, so that it does not end with the last client.
Result<base::Fd> make_pipe_at(const std::string& path) {
  if (::mkfifo(path.c_str(), 0600) != 0) return cannot_make(path, errno);
  base::Fd pipe(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  if (!pipe) return cannot_make(path, errno);
  return pipe;
}

/// Returns the worker in whose process group the process is, or from which it descends in the worker's session; 0 if there is
/// none.
pid_t worker_of(pid_t pid, const std::set<pid_t>& workers) {
  const pid_t session = ::getsid(pid);
  while (pid > 0 && ::getsid(pid) == session) {
    const pid_t group = ::getpgid(pid);
    if (workers.contains(group)) return group;
    pid = base::read_process_state(pid).parent;
  }
  return 0;
}

/// The descriptor makes sure that the process is the same between the check and the signal.
bool send_signal(pid_t pid, int signal, const std::set<pid_t>& workers, const std::string& started_at) {
  const base::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process || !worker_of(pid, workers)) return false;
  const base::ProcessState state = base::read_process_state(pid);
  if (state.gone() || state.started_at != started_at) return false;
  if (::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0) return true;
  if (errno != ESRCH) base::log_error(fmt::format("cannot signal process {}: {}", pid, base::errno_text(errno)));
  return false;
}

}  // namespace

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<TimerRequest> parse_timer_request(std::string_view line) {
  using nlohmann::json;
  const json root = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return std::nullopt;
  const auto pid = root.find("pid");
  const auto scope = root.find("scope_id");
  const auto expiration_time = root.find("expiration_time");
  const auto signal = root.find("signal");
  const auto end = root.end();
  if (pid == end || scope == end || expiration_time == end || signal == end) return std::nullopt;
  if (!pid->is_number_integer() || !scope->is_string() || !expiration_time->is_number() || !signal->is_number_integer())
    return std::nullopt;
  const auto number = pid->get<long long>();
  const auto signal_number = signal->get<long long>();
  if (number <= 0 || number > 1 << 30 || signal_number > SIGRTMAX || signal_number < -SIGRTMAX) return std::nullopt;
  return TimerRequest{static_cast<pid_t>(number), scope->get<std::string>(), expiration_time->get<double>(),
                      static_cast<int>(signal_number)};
}

std::string Overrun::describe() const { return fmt::format("block \"{}\" overran its timer", printable(scope)); }

Result<WatchdogTimer> WatchdogTimer::create(const std::string& path) {
  WatchdogTimer timer;
  timer.path_ = path;
  if (!path.empty()) {
    const Result<bool> is_free = remove_former(path);
    if (!is_free) return is_free.error();
    if (!*is_free) {
      timer.path_.clear();
      base::log_warning(
          fmt::format("TORCHELASTIC_TIMER_FILE=\"{}\" belongs to another launcher; this one makes its own pipe", path));
    }
  }
  if (timer.path_.empty()) {
    Result<std::string> folder = base::make_unique_directory(base::temporary_folder() + "/torchelastic_timer_");
    if (!folder) return Error("cannot make the watchdog timers' named pipe").caused_by(folder.error());
    timer.folder_ = *folder;
    timer.path_ = timer.folder_ + "/pipe";
  }
  Result<base::Fd> pipe = make_pipe_at(timer.path_);
  if (!pipe) return pipe.error();
  timer.pipe_ = std::move(*pipe);
  return timer;
}

WatchdogTimer::~WatchdogTimer() {
  if (pipe_) remove_files();
}

void WatchdogTimer::remove_files() const {
  ::unlink(path_.c_str());
  if (!folder_.empty()) ::rmdir(folder_.c_str());
}

void WatchdogTimer::read(const std::set<pid_t>& workers) {
  char buffer[kMaxLine];
  for (int i = 0; i < kMaxReads; ++i) {
    const ssize_t size = ::read(pipe_.get(), buffer, sizeof buffer);
    if (size <= 0) return;
    std::string_view rest(buffer, static_cast<size_t>(size));
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      partial_line_ += rest.substr(0, end);
      if (!std::exchange(is_line_too_long_, false)) take_line(partial_line_, workers);
      partial_line_.clear();
    }
    partial_line_ += rest;
    if (partial_line_.size() <= kMaxLine) continue;
    if (!std::exchange(is_line_too_long_, true)) ignore(fmt::format("a line of more than {} bytes", kMaxLine));
    partial_line_.clear();
  }
}

void WatchdogTimer::take_line(std::string_view line, const std::set<pid_t>& workers) {
  std::optional<TimerRequest> request = parse_timer_request(line);
  if (!request) return ignore(fmt::format("\"{}\"", printable(line)));
  const std::pair key(request->pid, std::move(request->scope));
  if (request->expiration_time < 0) {
    timers_.erase(key);
    return;
  }
  const base::ProcessState state = base::read_process_state(request->pid);
  if (!worker_of(request->pid, workers)) {
    // A process that has ended in the meantime needs no warning.
    if (!state.gone())
      ignore(fmt::format("a timer for process {}, which is not one of this job's workers", request->pid));
    return;
  }
  if (timers_.size() >= kMaxTimers && !timers_.contains(key)) {
    // Sorted by pid, so that each process is checked once.
    std::pair<pid_t, bool> last{0, false};
    std::erase_if(timers_, [&last](const auto& timer) {
      const pid_t pid = timer.first.first;
      if (pid != last.first) last = {pid, base::read_process_state(pid).gone()};
      return last.second;
    });
    if (timers_.size() >= kMaxTimers)
      return ignore(fmt::format("a timer when there are already {} others", timers_.size()));
  }
  timers_[key] = {request->expiration_time, request->signal, state.started_at};
}

void WatchdogTimer::ignore(const std::string& why) {
  if (std::exchange(has_ignored_, true)) return;
  base::log_warning(fmt::format(
      "ignoring a request to the watchdog timers through \"{}\": {}; further cases are not reported", path_, why));
}

void WatchdogTimer::forget() {
  char buffer[kMaxLine];
  for (int i = 0; i<kMaxReads&& ::read(pipe_.get(), buffer, sizeof buffer)> 0; ++i) {
  }
  timers_.clear();
  partial_line_.clear();
  is_line_too_long_ = false;
}

std::optional<double> WatchdogTimer::next_expiration() const {
  std::optional<double> next;
  for (const auto& [key, timer] : timers_) next = std::min(next.value_or(timer.expiration_time), timer.expiration_time);
  return next;
}

std::vector<Overrun> WatchdogTimer::end_overruns(double now, const std::set<pid_t>& workers) {
  std::map<pid_t, std::vector<std::pair<Overrun, std::string>>> expired;
  std::erase_if(timers_, [&](const auto& entry) {
    const auto& [key, timer] = entry;
    if (timer.expiration_time > now) return false;
    Overrun overrun{key.first, worker_of(key.first, workers), key.second, timer.expiration_time, timer.signal};
    expired[key.first].emplace_back(std::move(overrun), timer.started_at);
    return true;
  });
  std::vector<Overrun> ended;
  for (auto& [pid, timers] : expired) {
    const auto is_earlier = [](const auto& a, const auto& b) {
      const auto rank = [](const Overrun& overrun) { return std::pair(overrun.signal <= 0, overrun.expiration_time); };
      return rank(a.first) < rank(b.first);
    };
    auto& [overrun, started_at] = *std::min_element(timers.begin(), timers.end(), is_earlier);
    overrun.signal = std::max(overrun.signal, 0);
    if (send_signal(pid, overrun.signal, workers, started_at)) ended.push_back(std::move(overrun));
  }
  return ended;
}

}  // namespace cohort::elastic
