#include "cohort/base/log/log.h"

#include <fmt/format.h>

#include <atomic>
#include <cctype>
#include <mutex>
#include <set>

#include "cohort/base/log/log_writer.h"
#include "cohort/base/log/terminal.h"
#include "cohort/base/system/env.h"

namespace cohort::base {
namespace {

constexpr const char* kNames[] = {"error", "warning", "info", "debug"};

LogLevel level_from_environment() {
  const std::optional<std::string> word = get_env("COHORT_LOG_LEVEL");
  if (!word || word->empty()) return LogLevel::kWarning;
  if (const auto level = parse_log_level(*word)) return *level;
  const std::string line = format_log_line(
      LogLevel::kWarning, fmt::format("COHORT_LOG_LEVEL=\"{}\" is not error, warning, info or debug", *word));
  write_message(line);
  return LogLevel::kWarning;
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

std::atomic<LogWriter>& current_writer() {
  static std::atomic<LogWriter> writer{nullptr};
  return writer;
}

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (int level = 0; level < 4; ++level) {
    if (lower == kNames[level]) return static_cast<LogLevel>(level);
  }
  return std::nullopt;
}

// Relaxed: the level guards no other data.
LogLevel log_level() { return current_level().load(std::memory_order_relaxed); }
void set_log_level(LogLevel level) { current_level().store(level, std::memory_order_relaxed); }

std::string format_log_line(LogLevel level, std::string_view message) {
  return fmt::format("[cohort] {}: {}\n", kNames[static_cast<int>(level)], message);
}

void log(LogLevel level, std::string_view message) {
  if (level > log_level()) return;
  write_log_lines(format_log_line(level, message));
}

void write_log_lines(std::string_view lines) {
  if (const LogWriter writer = current_writer().load()) return writer(lines);
  write_message(lines);
}

void set_log_writer(LogWriter writer) { current_writer().store(writer); }

bool warn_once(const std::string& message) {
  // Leaked: a message may come from a destructor at exit.
  static std::mutex& mutex = *new std::mutex;
  static std::set<std::string>& seen = *new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (!seen.insert(message).second) return false;
  }
  log_warning(message);
  return true;
}

}  // namespace cohort::base
