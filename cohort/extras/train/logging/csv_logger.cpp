#include "cohort/extras/train/logging/csv_logger.h"

#include "cohort/extras/report/records/csv_log.h"
#include "cohort/train/logging/run_log.h"

namespace cohort::train {
namespace {

constexpr const char* kCsvLogger = "CsvLogger";

}  // namespace

CsvLogger::CsvLogger(const std::string& path, const LoggerOptions& options)
    : log_(detail::begin_log<report::CsvLog>(kCsvLogger, path, options)) {}

CsvLogger::~CsvLogger() {
  detail::close_quietly([this] { detail::close_log(log_, kCsvLogger); });
}

void CsvLogger::log_metrics(int64_t step, const Metrics& values) {
  detail::add_run_record(log_, kCsvLogger, step, values);
}
void CsvLogger::flush() { comm::or_throw(detail::open_log(log_, kCsvLogger).sync(), kCsvLogger); }
void CsvLogger::close() { detail::close_log(log_, kCsvLogger); }

}  // namespace cohort::train
