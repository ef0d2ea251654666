/// The text of an epoch's live line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/report/records/run_record.h"
#include "cohort/report/terminal/line_parts.h"

namespace cohort::report {

struct EpochFigures {
  std::string label = "epoch";
  std::optional<int64_t> epoch = {};       ///< from 0
  std::optional<int64_t> num_epochs = {};  ///< absent if not known
  int64_t step = 0;
  std::optional<int64_t> num_steps = {};  ///< absent if not known
  int64_t first_step = 0;
  double seconds = 0.0;     ///< since first_step
  int64_t num_samples = 0;  ///< since first_step, of all ranks
  int world_size = 1;
  std::string unit = "samples";
  NamedNumbers metrics = {};
  std::optional<double> data_wait_share = {};
  std::optional<double> communication_share = {};
  std::optional<uint64_t> memory_bytes = {};
};

/// The parts for a running epoch. `has_bar` adds a progress bar.
std::vector<LinePart> epoch_parts(const EpochFigures& figures, bool has_bar);
/// The parts for an epoch that has ended.
std::vector<LinePart> ended_epoch_parts(const EpochFigures& figures);

}  // namespace cohort::report
