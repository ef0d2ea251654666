#include "cohort/report/terminal/live_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log_writer.h"
#include "cohort/base/log/terminal.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::report {
namespace {

constexpr size_t kUsualColumns = 80;

// Leaked: a message may come from a destructor at exit.
struct OpenLines {
  std::mutex mutex;  // guards every LiveLine, too
  std::vector<LiveLine*> lines;
};
OpenLines& open_lines() {
  static OpenLines& lines = *new OpenLines;
  return lines;
}

// Ignores errors: a closed terminal must not end the training.
void write_if_possible(int fd, const std::string& text) { static_cast<void>(base::write_all(fd, text).ok()); }

}  // namespace

size_t terminal_columns(int fd) {
  struct winsize size {};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0) return 0;
  if (size.ws_col > 0) return size.ws_col;
  // Some terminals do not know their width: over a serial line, or in some containers.
  const auto columns = base::parse_int(base::get_env("COLUMNS").value_or(""));
  return columns && *columns > 0 && *columns < 10000 ? static_cast<size_t>(*columns) : kUsualColumns;
}

// Called by base::log while it holds no lock.
void write_above_open_lines(std::string_view message) {
  OpenLines& open = open_lines();
  const std::lock_guard lock(open.mutex);
  const auto shares = [](const LiveLine* line) { return line->shares_standard_error(); };
  const auto found = std::find_if(open.lines.begin(), open.lines.end(), shares);
  if (found == open.lines.end()) return base::write_message(message);
  const LiveLine& line = **found;
  write_if_possible(line.fd_, line.eraser() + std::string(message) + line.line_);
}

LiveLine::LiveLine(int fd, LineKind kind) : fd_(fd) {
  is_terminal_ = kind == LineKind::kAuto ? base::is_clever_terminal(fd) : kind == LineKind::kTerminal;
  has_color_ = is_terminal_ && base::get_env("NO_COLOR").value_or("").empty() && base::is_term_clever();
}

LiveLine::~LiveLine() { end(); }

void LiveLine::show(const std::vector<LinePart>& parts) {
  const std::lock_guard lock(open_lines().mutex);
  if (!is_terminal_) return write_if_possible(fd_, fitted_line(parts, 0, false) + "\n");
  const std::string erase = eraser();
  open(parts);
  write_if_possible(fd_, erase + line_);
}

void LiveLine::print(std::string_view text) {
  const std::lock_guard lock(open_lines().mutex);
  write_if_possible(fd_, (is_open_ ? eraser() : "") + std::string(text) + "\n" + (is_open_ ? line_ : ""));
}

void LiveLine::end() {
  const std::lock_guard lock(open_lines().mutex);
  if (is_open_) write_if_possible(fd_, "\n");
  close();
}

void LiveLine::erase() {
  const std::lock_guard lock(open_lines().mutex);
  if (is_open_) write_if_possible(fd_, eraser());
  close();
}

// A terminal that has become narrower shows the line in several rows.
std::string LiveLine::eraser() const {
  const size_t columns = terminal_columns(fd_);
  const size_t rows_above = is_open_ && columns > 0 && drawn_columns_ > 0 ? (drawn_columns_ - 1) / columns : 0;
  return rows_above == 0 ? std::string(base::kEraseLine) : fmt::format("\r\x1b[{}A\x1b[J", rows_above);
}

// Leaves the last column free, because terminals differ in what they do after a letter there.
void LiveLine::open(const std::vector<LinePart>& parts) {
  const size_t columns = terminal_columns(fd_);
  const size_t width = columns > 1 ? columns - 1 : 0;
  line_ = fitted_line(parts, width, has_color_);
  drawn_columns_ = num_columns(fitted_line(parts, width, false));
  if (is_open_) return;
  is_open_ = true;
  open_lines().lines.push_back(this);
  base::set_log_writer(&write_above_open_lines);
}

void LiveLine::close() {
  if (!is_open_) return;
  is_open_ = false;
  std::erase(open_lines().lines, this);
}

bool LiveLine::shares_standard_error() const {
  struct stat own {
  }, other{};
  return ::fstat(fd_, &own) == 0 && ::fstat(STDERR_FILENO, &other) == 0 && ::isatty(STDERR_FILENO) == 1 &&
         own.st_rdev == other.st_rdev && own.st_ino == other.st_ino;
}

}  // namespace cohort::report
