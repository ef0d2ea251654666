/// The function that writes the messages of log.h while another part of the program rewrites a line on the terminal.
#pragma once

#include <string_view>

namespace cohort::base {

/// Writes complete lines instead of log(). Called from any thread, also from several at once; must stay valid as long as the
/// process.
using LogWriter = void (*)(std::string_view lines);
/// Sets the writer. With null, log() writes to stderr itself.
void set_log_writer(LogWriter writer);
/// Writes lines as log() does: with the writer if one is set, else to stderr.
void write_log_lines(std::string_view lines);

}  // namespace cohort::base
