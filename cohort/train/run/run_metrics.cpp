#include "cohort/train/run/run_metrics.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/train/logging/folder_loggers.h"

namespace cohort::train::detail {
namespace {

// Lets training continue if the disk refuses a log. A wrong metric name, however, is the program's mistake.
class PatientLogger : public Logger {
 public:
  explicit PatientLogger(std::shared_ptr<Logger> logger) : logger_(std::move(logger)) {}
  void log_hyperparameters(const Hyperparameters& values) override {
    warn_if_refused([&] { logger_->log_hyperparameters(values); });
  }
  void log_metrics(int64_t step, const Metrics& values) override {
    warn_if_refused([&] { logger_->log_metrics(step, values); });
  }
  void flush() override {
    warn_if_refused([&] { logger_->flush(); });
  }
  void close() override {
    warn_if_refused([&] { logger_->close(); });
  }

 private:
  template <typename Call>
  void warn_if_refused(const Call& call) {
    try {
      call();
    } catch (const c10::ValueError&) {
      throw;
    } catch (const c10::Error& error) {
      if (std::exchange(has_warned_, true)) return;
      base::log_warning("Trainer: a log is incomplete\n  caused by: " + comm::text_of(error));
    }
  }

  std::shared_ptr<Logger> logger_;
  bool has_warned_ = false;
};

}  // namespace

void RunMetrics::set(const Metrics& values) {
  for (const auto& [name, value] : values) {
    ++times_set_[name];
    const auto found =
        std::find_if(values_.begin(), values_.end(), [&name = name](const auto& each) { return each.first == name; });
    if (found == values_.end()) {
      values_.emplace_back(name, value);
    } else {
      found->second = value;
    }
  }
}

std::optional<double> RunMetrics::find(std::string_view name) const {
  for (const auto& [known, value] : values_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

int64_t RunMetrics::times_set(const std::string& name) const {
  const auto found = times_set_.find(name);
  return found == times_set_.end() ? 0 : found->second;
}

void RunMetrics::open_logger(const TrainerOptions& options, int64_t first_step) {
  close_logger();  // it closes the files that the next one opens
  auto loggers = std::make_shared<LoggerList>();
  if (!options.log_folder.empty()) {
    loggers->add(std::make_shared<PatientLogger>(folder_loggers(options.log_folder, first_step, options.plot)));
  }
  if (options.make_logger) {
    auto own = options.make_logger(first_step);
    if (own) loggers->add(std::make_shared<PatientLogger>(std::move(own)));
  }
  if (loggers->empty()) return;
  logger_ = std::move(loggers);
  if (!options.hyperparameters.empty()) logger_->log_hyperparameters(options.hyperparameters);
}

void RunMetrics::log(int64_t step, const Metrics& values) const {
  if (logger_ && !values.empty()) logger_->log_metrics(step, values);
}

void RunMetrics::flush() const {
  if (logger_) logger_->flush();
}

}  // namespace cohort::train::detail
