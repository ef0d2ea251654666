/// Short messages on stderr: `[cohort] warning: text`. Each message is written with one call, so lines of several ranks do not
/// mix.
///
/// COHORT_LOG_LEVEL chooses which messages are shown: error, warning (default), info or debug. It is read at the first message.
/// Thread-safety: every function may be called from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cohort::base {

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

/// Converts "warning" to kWarning, in upper or lower case. Returns nothing for an unknown word.
std::optional<LogLevel> parse_log_level(std::string_view word);
LogLevel log_level();
void set_log_level(LogLevel level);

/// The line that log() writes, newline included.
std::string format_log_line(LogLevel level, std::string_view message);
void log(LogLevel level, std::string_view message);

inline void log_error(std::string_view message) { log(LogLevel::kError, message); }
inline void log_warning(std::string_view message) { log(LogLevel::kWarning, message); }
inline void log_info(std::string_view message) { log(LogLevel::kInfo, message); }
inline void log_debug(std::string_view message) { log(LogLevel::kDebug, message); }

/// As log_warning, but writes each text only once in this process. Returns true the first time.
bool warn_once(const std::string& message);

}  // namespace cohort::base
