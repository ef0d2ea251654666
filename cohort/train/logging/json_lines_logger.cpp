#include "cohort/train/logging/json_lines_logger.h"

#include "cohort/report/records/json_lines_log.h"
#include "cohort/train/logging/run_log.h"

namespace cohort::train {
namespace {

constexpr const char* kJsonLinesLogger = "JsonLinesLogger";

}  // namespace

JsonLinesLogger::JsonLinesLogger(const std::string& path, const LoggerOptions& options)
    : log_(detail::begin_log<report::JsonLinesLog>(kJsonLinesLogger, path, options)) {}

JsonLinesLogger::~JsonLinesLogger() {
  detail::close_quietly([this] { detail::close_log(log_, kJsonLinesLogger); });
}

void JsonLinesLogger::log_hyperparameters(const Hyperparameters& values) {
  comm::or_throw(detail::open_log(log_, kJsonLinesLogger).add_hyperparameters(values, report::wall_time_now()),
                 kJsonLinesLogger);
}

void JsonLinesLogger::log_metrics(int64_t step, const Metrics& values) {
  detail::add_run_record(log_, kJsonLinesLogger, step, values);
}
void JsonLinesLogger::flush() { comm::or_throw(detail::open_log(log_, kJsonLinesLogger).sync(), kJsonLinesLogger); }
void JsonLinesLogger::close() { detail::close_log(log_, kJsonLinesLogger); }

}  // namespace cohort::train
