/// Who writes the messages of log.h, where somebody rewrites a line on the terminal meanwhile.
#pragma once

#include <string_view>

namespace cohort::base {

/// Writes whole lines in the place of log(). Called from any thread, several at a time; lives as long as the process.
using LogWriter = void (*)(std::string_view lines);
/// Null: log() writes to stderr itself.
void set_log_writer(LogWriter writer);
/// Writes lines as log() does: by the writer if one is set, else to stderr.
void write_log_lines(std::string_view lines);

}  // namespace cohort::base
