/// RunMetrics: the numbers of a run by name, and the logger that gets them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/train/strategy/trainer_options.h"

namespace cohort::train::detail {

class RunMetrics {
 public:
  void set(const Metrics& values);
  const Metrics& all() const { return values_; }
  std::optional<double> find(std::string_view name) const;
  /// How often the number has been set; 0 means never.
  int64_t times_set(const std::string& name) const;

  /// Opens the logger that the options ask for, from step `first_step` on. Closes the previous one first.
  void open_logger(const TrainerOptions& options, int64_t first_step);
  void close_logger() { logger_.reset(); }
  bool has_logger() const { return logger_ != nullptr; }
  /// Does nothing without a logger or without values.
  void log(int64_t step, const Metrics& values) const;
  void flush() const;

 private:
  Metrics values_;
  std::map<std::string, int64_t, std::less<>> times_set_;
  std::shared_ptr<Logger> logger_;
};

}  // namespace cohort::train::detail
