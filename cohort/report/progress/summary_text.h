/// The table at the end of a run, with hints if ranks did not compute most of the time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/report/records/run_record.h"

namespace cohort::report {

struct EpochResult {
  int64_t epoch = 0;  ///< from 0
  double seconds = 0.0;
  int64_t num_samples = 0;
  NamedNumbers metrics = {};
  std::optional<double> data_wait_share = {};
  std::optional<double> communication_share = {};
  std::optional<double> cpu_share = {};
};

struct SummaryOptions {
  int world_size = 1;
  std::string unit = "samples";
  double low_data = 0.15;
  double low_communication = 0.3;
  double low_cpu = 0.5;
};

/// Returns the table as lines, each with a newline; "" without an epoch.
std::string summary_text(const std::vector<EpochResult>& epochs, const SummaryOptions& options);

}  // namespace cohort::report
