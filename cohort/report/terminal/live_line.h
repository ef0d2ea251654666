/// LiveLine: the line at the bottom of a terminal that is rewritten in place, and the text that passes above it.
///
/// While a line is open, messages of the library (base/log/log.h) that would go to the same terminal erase it, stand in lines of
/// their own, and are followed by it again; so does print(). On other outputs every line is simply written. Each change is one
/// write, so lines of several ranks do not mix. Messages of another process erase the line; the next change shows it again.
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
  kAuto,      ///< by what the output is
  kLog,       ///< a line per update
  kTerminal,  ///< one line, rewritten
};

/// What the terminal says now, or COLUMNS, or 80, where it does not know; 0 where it is none.
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
  /// Lines that stay, above the open one. No newline at the end.
  void print(std::string_view text);
  /// The open line stays where it is: what is written next begins below it.
  void end();
  /// The open line vanishes.
  void erase();

 private:
  friend void write_above_open_lines(std::string_view message);
  std::string eraser() const;
  void open(const std::vector<LinePart>& parts);
  void close();
  bool shares_standard_error() const;

  const int fd_;
  bool is_terminal_ = false;
  bool has_colour_ = false;
  bool is_open_ = false;
  std::string line_;
  size_t drawn_columns_ = 0;
};

}  // namespace cohort::report
