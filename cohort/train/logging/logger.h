/// Logger: the interface to which a run's numbers go. CsvLogger, JsonLinesLogger, TensorBoardLogger, PlotLogger, and classes of
/// the user implement it.
///
///     cohort::train::JsonLinesLogger log("run/metrics.jsonl");
///     log.log_hyperparameters({{"lr", 0.1}, {"batch_size", 32}});
///     log.log_metrics(step, {{"train/loss", loss}, {"lr", rate}});
///     log.close();
///
/// A run that resumes from its checkpoint at step N sets purge_step = N + 1, the first step that it repeats. The interrupted
/// run's records of this step and later ones are then removed; TensorBoard, whose files only grow, is told to hide them.
///
/// Use a logger on one rank; loggers do not communicate. Only the owner can read its files. flush() and close() return when
/// everything is in the file; CsvLogger and JsonLinesLogger write each record at once. Errors: c10::Error that names the file.
/// The destructor closes and warns instead of throwing.
/// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/progress.h"

namespace cohort::train {

using Hyperparameter = std::variant<bool, int64_t, double, std::string>;
using Hyperparameters = std::vector<std::pair<std::string, Hyperparameter>>;

class COHORT_API Logger {
 public:
  virtual ~Logger();
  /// Logs the options that the run was started with. By default does nothing.
  virtual void log_hyperparameters(const Hyperparameters& values);
  /// `step`: not negative. Names such as "train/loss" group curves. Several calls for one step make several records.
  virtual void log_metrics(int64_t step, const Metrics& values) = 0;
  virtual void flush() = 0;
  /// Ends the log; nothing may be logged afterwards. A second call does nothing.
  virtual void close() = 0;
};

struct LoggerOptions {
  /// Removes existing records of this step and later ones. If absent, existing records are kept. At 1, the first step of a run, a
  /// file with records is renamed (metrics.1.csv), with a warning, and a new one begins.
  std::optional<int64_t> purge_step = {};
  /// Whether to start anew and drop existing records.
  bool overwrite = false;
};

/// Several loggers as one: every call goes to each, in their order. If one of them throws, flush() and close() still reach the
/// others; the first error is then thrown.
class COHORT_API LoggerList : public Logger {
 public:
  void add(std::shared_ptr<Logger> logger) { loggers_.push_back(std::move(logger)); }
  bool empty() const { return loggers_.empty(); }
  void log_hyperparameters(const Hyperparameters& values) override;
  void log_metrics(int64_t step, const Metrics& values) override;
  void flush() override;
  void close() override;

 private:
  void for_all(void (*call)(Logger&));
  std::vector<std::shared_ptr<Logger>> loggers_;
};

}  // namespace cohort::train
