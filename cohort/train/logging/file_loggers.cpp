#include "cohort/train/logging/file_loggers.h"

#include "cohort/report/events/event_file.h"
#include "cohort/report/records/csv_log.h"
#include "cohort/report/records/json_lines_log.h"
#include "cohort/train/logging/log_errors.h"
#include "cohort/train/logging/old_logs.h"

namespace cohort::train {
namespace {

constexpr const char* kCsvLogger = "CsvLogger";
constexpr const char* kJsonLinesLogger = "JsonLinesLogger";

report::RunLogOptions run_log_options(const LoggerOptions& options) {
  return {.purge_step = options.purge_step, .overwrite = options.overwrite};
}

template <typename Log>
std::unique_ptr<Log> begin_log(const char* logger, const std::string& path, const LoggerOptions& options) {
  const bool begins_anew = options.purge_step && *options.purge_step <= 1;
  if (begins_anew && !options.overwrite) detail::keep_old_logs(logger, {path});
  return std::make_unique<Log>(detail::or_fail(logger, Log::open(path, run_log_options(options))));
}

template <typename Log>
Log& open_log(const std::unique_ptr<Log>& log, const char* logger) {
  TORCH_CHECK(log, "[cohort] ", logger, ": it is closed, so nothing can be logged");
  return *log;
}

template <typename Log>
void add_run_record(const std::unique_ptr<Log>& log, const char* logger, int64_t step, const Metrics& values) {
  const report::RunRecord record{.step = step, .time = report::wall_time_now(), .values = values};
  detail::or_refuse(logger, report::check_record(record));
  detail::or_fail(logger, open_log(log, logger).add(record));
}

// What was logged is on the disk, or the error says that it may not be.
template <typename Log>
void close_log(std::unique_ptr<Log>& log, const char* logger) {
  const std::unique_ptr<Log> closed = std::move(log);
  if (closed) detail::or_fail(logger, closed->sync());
}

}  // namespace

CsvLogger::CsvLogger(const std::string& path, const LoggerOptions& options)
    : log_(begin_log<report::CsvLog>(kCsvLogger, path, options)) {}

CsvLogger::~CsvLogger() {
  detail::close_quietly([this] { close_log(log_, kCsvLogger); });
}

void CsvLogger::log_metrics(int64_t step, const Metrics& values) { add_run_record(log_, kCsvLogger, step, values); }
void CsvLogger::flush() { detail::or_fail(kCsvLogger, open_log(log_, kCsvLogger).sync()); }
void CsvLogger::close() { close_log(log_, kCsvLogger); }

JsonLinesLogger::JsonLinesLogger(const std::string& path, const LoggerOptions& options)
    : log_(begin_log<report::JsonLinesLog>(kJsonLinesLogger, path, options)) {}

JsonLinesLogger::~JsonLinesLogger() {
  detail::close_quietly([this] { close_log(log_, kJsonLinesLogger); });
}

void JsonLinesLogger::log_hyperparameters(const Hyperparameters& values) {
  detail::or_fail(kJsonLinesLogger,
                  open_log(log_, kJsonLinesLogger).add_hyperparameters(values, report::wall_time_now()));
}

void JsonLinesLogger::log_metrics(int64_t step, const Metrics& values) {
  add_run_record(log_, kJsonLinesLogger, step, values);
}
void JsonLinesLogger::flush() { detail::or_fail(kJsonLinesLogger, open_log(log_, kJsonLinesLogger).sync()); }
void JsonLinesLogger::close() { close_log(log_, kJsonLinesLogger); }

}  // namespace cohort::train
