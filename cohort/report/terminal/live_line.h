/// LiveLine: the line at the bottom of a terminal that is rewritten in place, with other text above it.
///
/// While a line is open, messages of the library (base/log/log.h) to the same terminal erase it, print lines of their own, and
/// show it again; so does print(). On other outputs every line is simply written. Each change is one write, so lines of several
/// ranks do not mix. Messages of another process erase the line; the next change shows it again.
///
/// Thread-safety: any thread; lines of one terminal are written one at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/report/terminal/line_parts.h"

namespace cohort::report {

enum class LineKind {
  kAuto,      ///< depends on the output
  kLog,       ///< a line per update
  kTerminal,  ///< one line, rewritten
};

/// Returns the width of the terminal, or COLUMNS, or 80 if it does not tell; 0 if `fd` is not a terminal.
size_t terminal_columns(int fd);

class LiveLine {
 public:
  LiveLine(int fd, LineKind kind);
  /// Ends an open line.
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool is_terminal() const { return is_terminal_; }
  /// Replaces the line.
  void show(const std::vector<LinePart>& parts);
  /// Prints lines that stay above the open one. `text` has no newline at the end.
  void print(std::string_view text);
  /// Leaves the open line where it is: the next output begins below it.
  void end();
  /// Erases the open line.
  void erase();

 private:
  friend void write_above_open_lines(std::string_view message);
  std::string eraser() const;
  void open(const std::vector<LinePart>& parts);
  void close();
  bool shares_standard_error() const;

  const int fd_;
  bool is_terminal_ = false;
  bool has_color_ = false;
  bool is_open_ = false;
  std::string line_;
  size_t drawn_columns_ = 0;
};

}  // namespace cohort::report
