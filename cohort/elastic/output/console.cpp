#include "cohort/elastic/output/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>

#include "cohort/base/log/log_writer.h"
#include "cohort/base/log/terminal.h"
#include "cohort/base/system/deadline.h"

namespace cohort::elastic {
namespace {

constexpr size_t kLongestLine = 1 << 20;

base::Fd open_anew(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !(S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode))) return {};
  return base::Fd(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

/// Writes as write() does, but returns EAGAIN instead of waiting.
ssize_t write_now(int fd, bool never_waits, std::string_view text) {
  if (never_waits) return ::write(fd, text.data(), text.size());
  const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  pollfd entry{fd, POLLOUT, 0};
  if (::poll(&entry, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(fd, text.data(), text.size());
}

std::atomic<Consoles*> current{nullptr};

void write_message(std::string_view lines) {
  Consoles* const consoles = current.load();
  if (!consoles) return base::write_message(lines);
  consoles->errors.append(base::fresh_line(consoles->errors.fd()) + std::string(lines));
  consoles->errors.write_all();
}

}  // namespace

std::string PrefixedLines::append(std::string_view chunk) {
  std::string lines;
  for (const char c : chunk) {
    const bool second_half = c == '\n' && after_carriage_return_;
    after_carriage_return_ = c == '\r';
    if (second_half) continue;
    if (c != '\n' && c != '\r') line_ += c;
    if (c == '\n' || c == '\r' || line_.size() >= kLongestLine) {
      lines.append(prefix_).append(line_).push_back('\n');
      line_.clear();
    }
  }
  return lines;
}

std::string PrefixedLines::finish() {
  if (line_.empty()) return {};
  std::string line = prefix_ + line_ + "\n";
  line_.clear();
  return line;
}

Console::Console(int fd) : fd_(fd), own_(open_anew(fd)) {}

void Console::append(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!broken_) pending_ += text;
}

bool Console::has_pending() const {
  const std::lock_guard lock(mutex_);
  return !pending_.empty();
}

bool Console::is_full() const {
  const std::lock_guard lock(mutex_);
  return pending_.size() > kFullBytes;
}

void Console::drop_pending() {
  const std::lock_guard lock(mutex_);
  pending_.clear();
}

void Console::write_all() {
  while (write_some()) {
  }
}

bool Console::write_some() {
  const std::lock_guard lock(mutex_);
  if (pending_.empty()) return false;
  // A writable pipe takes PIPE_BUF bytes at once. Ending at a line's end keeps others from writing into this line.
  size_t size = std::min<size_t>(pending_.size(), PIPE_BUF);
  const size_t newline = size == 0 ? std::string::npos : pending_.rfind('\n', size - 1);
  if (newline != std::string::npos) size = newline + 1;
  const ssize_t written = write_now(own_ ? own_.get() : fd_, static_cast<bool>(own_), {pending_.data(), size});
  if (written >= 0) {
    pending_.erase(0, static_cast<size_t>(written));
    return true;
  }
  if (errno == EAGAIN || errno == EINTR) return false;
  broken_ = true;
  pending_.clear();
  return false;
}

Consoles::Consoles() : output(STDOUT_FILENO), errors(STDERR_FILENO) {
  current = this;
  base::set_log_writer(&write_message);
}

Consoles::~Consoles() {
  finish(nullptr, patience);
  base::set_log_writer(nullptr);
  current = nullptr;
}

void Consoles::add_watches(std::vector<Watch>& watches) {
  for (Console* console : {&output, &errors}) {
    if (console->has_pending()) watches.push_back({console->fd(), POLLOUT, [console] { console->write_all(); }});
  }
}

void Consoles::write_all() {
  output.write_all();
  errors.write_all();
}

void Consoles::finish(SignalSource* signals, std::optional<std::chrono::milliseconds> limit) {
  const auto deadline = base::deadline_after(limit.value_or(base::kLongestTime));
  write_all();
  while (output.has_pending() || errors.has_pending()) {
    const int left = base::milliseconds_until(deadline);
    bool is_over = left == 0;
    std::vector<Watch> watches;
    add_watches(watches);
    if (signals) watches.push_back({signals->fd(), POLLIN, [&] { is_over = signals->next().has_value(); }});
    if (!is_over) wait_for(watches, left);
    if (!is_over) continue;
    output.drop_pending();
    errors.drop_pending();
  }
}

}  // namespace cohort::elastic
