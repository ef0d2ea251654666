/// Messages on a terminal where another process may be rewriting a line in place (report/terminal/live_line.h).
#pragma once

#include <string>
#include <string_view>

namespace cohort::base {

/// TERM is set, and not "dumb": a terminal knows how to erase a line, and colours.
bool is_term_clever();
/// True for such a terminal.
bool is_clever_terminal(int fd);
/// Erases the line where the cursor stands: whoever rewrites one there writes it again.
inline constexpr std::string_view kEraseLine = "\r\x1b[2K";
/// kEraseLine on a clever terminal, else "".
std::string fresh_line(int fd);
/// Writes whole lines to stderr, the first on a fresh line, by one write as far as the system allows. Errors are forgotten.
void write_message(std::string_view lines);

}  // namespace cohort::base
