/// Messages on a terminal where another process may be rewriting a line in place (report/terminal/live_line.h).
#pragma once

#include <string>
#include <string_view>

namespace cohort::base {

/// Whether TERM is set and is not "dumb": such a terminal can erase a line and show colors.
bool is_term_clever();
/// Whether `fd` is such a terminal.
bool is_clever_terminal(int fd);
/// Erases the line at the cursor. A program that rewrites a line there writes it again.
inline constexpr std::string_view kEraseLine = "\r\x1b[2K";
/// kEraseLine on a clever terminal, else "".
std::string fresh_line(int fd);
/// Writes complete lines to stderr, the first on a fresh line, with one write call if the system allows it. Ignores errors.
void write_message(std::string_view lines);

}  // namespace cohort::base
