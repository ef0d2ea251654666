/// Functions of the loggers whose file is a log of records: CsvLogger and JsonLinesLogger. `logger`: its name, for errors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cohort/comm/error/throw_error.h"
#include "cohort/report/records/run_record.h"
#include "cohort/train/logging/close_quietly.h"
#include "cohort/train/logging/logger.h"
#include "cohort/train/logging/old_logs.h"

namespace cohort::train::detail {

template <typename Log>
std::unique_ptr<Log> begin_log(const char* logger, const std::string& path, const LoggerOptions& options) {
  const bool begins_anew = options.purge_step && *options.purge_step <= 1;
  if (begins_anew && !options.overwrite) keep_old_logs(logger, {path});
  const report::RunLogOptions log_options{.purge_step = options.purge_step, .overwrite = options.overwrite};
  return std::make_unique<Log>(comm::or_throw(Log::open(path, log_options), logger));
}

template <typename Log>
Log& open_log(const std::unique_ptr<Log>& log, const char* logger) {
  TORCH_CHECK(log, "[cohort] ", logger, ": it is closed, so nothing can be logged");
  return *log;
}

template <typename Log>
void add_run_record(const std::unique_ptr<Log>& log, const char* logger, int64_t step, const Metrics& values) {
  const report::RunRecord record{.step = step, .time = report::wall_time_now(), .values = values};
  comm::or_throw_value(report::check_record(record), logger);
  comm::or_throw(open_log(log, logger).add(record), logger);
}

// Throws if the logged records may not be on the disk.
template <typename Log>
void close_log(std::unique_ptr<Log>& log, const char* logger) {
  const std::unique_ptr<Log> closed = std::move(log);
  if (closed) comm::or_throw(closed->sync(), logger);
}

}  // namespace cohort::train::detail
