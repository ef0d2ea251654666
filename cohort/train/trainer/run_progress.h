/// RunProgress: what is shown of a run on rank 0: a line for each epoch, and the table of all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/train/logging/epoch_line.h"
#include "cohort/train/logging/run_summary.h"
#include "cohort/train/trainer/step_clock.h"

namespace cohort::train::detail {

class RunProgress {
 public:
  /// `num_data_ranks`: so many read other samples than each other.
  RunProgress(bool is_enabled, bool is_first_rank, int world_size, int num_data_ranks)
      : is_enabled_(is_enabled && is_first_rank),
        is_first_rank_(is_first_rank),
        world_size_(world_size),
        num_data_ranks_(num_data_ranks) {}

  /// `num_epochs`: 0: not known. `knows_communication`: else the times of it say nothing.
  void begin_run(int64_t num_epochs, bool knows_communication);
  /// `num_steps`: of the epoch, `first_step` of which were done before; 0: not known.
  void begin_epoch(int64_t epoch, int64_t num_steps, int64_t first_step);
  /// `step` of the epoch; samples and times since it began here.
  void update(int64_t step, int64_t samples, const Metrics& metrics, const StepTimes& times);
  /// The epoch's last line, and its line of the table.
  void end_epoch(int64_t step, EpochSummary summary);
  /// "validation": on a terminal a line for it, in the place of the epoch's, whose time stands still. `num_batches`: 0: not
  /// known.
  void begin_evaluation(const std::string& phase, int64_t num_batches);
  /// Of this rank.
  void update_evaluation(int64_t batch, int64_t samples);
  void end_evaluation();
  /// What the Trainer says by itself.
  void print(std::string_view text);
  /// What its user says: on rank 0, also where nothing else is shown.
  void print_anyway(std::string_view text);
  /// Also where training has thrown: the line stays as it is.
  void end_run();
  /// The table of what has ended so far; "" without an epoch.
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
