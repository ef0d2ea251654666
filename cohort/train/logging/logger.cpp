#include "cohort/train/logging/logger.h"

#include <exception>

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
  for_all([](Logger& logger) { logger.flush(); });
}

void LoggerList::close() {
  for_all([](Logger& logger) { logger.close(); });
}

void LoggerList::for_all(void (*call)(Logger&)) {
  std::exception_ptr first;
  for (const auto& logger : loggers_) {
    try {
      call(*logger);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace cohort::train
