/// A record of a run's log, and the checks that both kinds of files share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::report {

using NamedNumbers = std::vector<std::pair<std::string, double>>;

using HyperparameterValue = std::variant<bool, int64_t, double, std::string>;
using HyperparameterList = std::vector<std::pair<std::string, HyperparameterValue>>;

struct RunRecord {
  int64_t step = 0;
  double time = 0.0;  ///< seconds since 1970
  NamedNumbers values;
};

/// Returns the time in seconds since 1970.
double wall_time_now();

struct RunLogOptions {
  /// Removes existing records of this step and later ones.
  std::optional<int64_t> purge_step = {};
  /// Discards the existing content.
  bool overwrite = false;
};

/// Returns enough digits to read the same number back: "0.1", "1e-300", "nan", "inf".
std::string number_text(double value);

/// Fails for a negative step and for names that are empty, occur twice, are "step", "time" or "hyperparameters", have control
/// characters, or are not UTF-8.
base::Result<void> check_record(const RunRecord& record);
/// Fails for a name that occurs twice, because readers of JSON do not accept it.
base::Result<void> check_hyperparameters(const HyperparameterList& values);

}  // namespace cohort::report
