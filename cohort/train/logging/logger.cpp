#include "cohort/train/logging/logger.h"

namespace cohort::train {

Logger::~Logger() = default;

void Logger::log_hyperparameters(const Hyperparameters&) {}

void LoggerList::log_hyperparameters(const Hyperparameters& values) {
  for (const auto& logger : loggers_) logger->log_hyperparameters(values);
}

void LoggerList::log_metrics(int64_t step, const Metrics& values) {
  for (const auto& logger : loggers_) logger->log_metrics(step, values);
}

void LoggerList::flush() {
  for (const auto& logger : loggers_) logger->flush();
}

void LoggerList::close() {
  for (const auto& logger : loggers_) logger->close();
}

}  // namespace cohort::train
