/// Logger: where a run's numbers go. One interface; where they go is the class: CsvLogger, JsonLinesLogger, TensorBoardLogger,
/// PlotLogger, or one of the user's.
///
///     cohort::train::JsonLinesLogger log("run/metrics.jsonl");
///     log.log_hyperparameters({{"lr", 0.1}, {"batch_size", 32}});
///     log.log_metrics(step, {{"train/loss", loss}, {"lr", rate}});
///     log.close();
///
/// A run that goes on after its checkpoint at step N gives purge_step = N + 1, the first step that is made again: records of it
/// and of later steps, which the broken-off run wrote, are taken out; TensorBoard, whose files only grow, is told to hide them.
///
/// Use: on one rank; a logger talks to no other. Files can be read by their owner only. What is written is in the file when
/// flush() or close() returns; CsvLogger and JsonLinesLogger write each record at once.
/// Errors: c10::Error that names the file. The destructor closes and warns instead of throwing.
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
  /// What the run was started with. Default: nothing happens.
  virtual void log_hyperparameters(const Hyperparameters& values);
  /// `step`: not negative. Names such as "train/loss" group curves; several calls for one step are several records.
  virtual void log_metrics(int64_t step, const Metrics& values) = 0;
  virtual void flush() = 0;
  /// Nothing may be logged afterwards. A second call does nothing.
  virtual void close() = 0;
};

struct LoggerOptions {
  /// Records of this step and of later ones are removed from what is there already. Not given: what is there is kept. 1, the
  /// first step of a run: a file with records is kept under another name (metrics.1.csv), as a warning says, and another begins.
  std::optional<int64_t> purge_step = {};
  /// True: starts anew, whatever is there.
  bool overwrite = false;
};

/// Several loggers as one: every call goes to each, in their order. What one of them throws does not keep the others from flush()
/// and close(); the first error is thrown then.
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
