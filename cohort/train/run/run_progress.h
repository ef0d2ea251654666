/// RunProgress: shows a run on rank 0: a line for each epoch, and a table of all epochs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/train/logging/epoch_line.h"
#include "cohort/train/logging/run_summary.h"
#include "cohort/train/run/step_clock.h"

namespace cohort::train::detail {

class RunProgress {
 public:
  /// `num_data_ranks`: the number of ranks that read different samples.
  RunProgress(bool is_enabled, bool is_first_rank, int world_size, int num_data_ranks)
      : is_enabled_(is_enabled && is_first_rank),
        is_first_rank_(is_first_rank),
        world_size_(world_size),
        num_data_ranks_(num_data_ranks) {}

  /// `num_epochs`: absent if not known. `knows_communication`: whether communication times are meaningful.
  void begin_run(std::optional<int64_t> num_epochs, bool knows_communication);
  /// `num_steps`: steps of the epoch, including the `first_step` that were done before; absent if not known.
  void begin_epoch(int64_t epoch, std::optional<int64_t> num_steps, int64_t first_step);
  /// `step` counts within the epoch; samples and times count since the epoch began in this run.
  void update(int64_t step, int64_t samples, const Metrics& metrics, const StepTimes& times);
  /// Writes the epoch's last line, and adds its row to the table.
  void end_epoch(int64_t step, EpochSummary summary);
  /// Shows a line for "validation", on a terminal, in the place of the epoch's, whose clock stops. `num_batches`: absent if not
  /// known.
  void begin_evaluation(const std::string& phase, std::optional<int64_t> num_batches);
  /// Counts the batches and samples of this rank.
  void update_evaluation(int64_t batch, int64_t samples);
  void end_evaluation();
  /// Prints a message of the Trainer.
  void print(std::string_view text);
  /// Prints a message of the user on rank 0, also if progress is off.
  void print_anyway(std::string_view text);
  /// Ends the display, also after training has thrown; the line stays as it is.
  void end_run();
  /// Prints the table of the epochs that have ended; nothing without an epoch.
  void print_summary();
  bool is_enabled() const { return is_enabled_; }

 private:
  bool is_enabled_, is_first_rank_;
  bool knows_communication_ = false;
  int world_size_;
  int num_data_ranks_;
  int64_t epoch_ = 0;
  std::optional<EpochLine> line_, evaluation_;
  std::optional<RunSummary> summary_;
};

}  // namespace cohort::train::detail
