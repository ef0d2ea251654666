/// LoggingData: what DistributedDataParallel is set to, and what its steps took.
///
/// Names and units (bytes; nanoseconds, of which those that end in _start and _end are since the epoch) are those of
/// torch/csrc/distributed/c10d/logger.cpp, so a program that reads PyTorch's finds the same here. What Python's DDP gives by
/// _get_ddp_logging_data() as one dictionary are two maps here, strs_map and ints_map. Differences:
///   - a step counts when its backward ends; PyTorch counts it when the next forward begins;
///   - times are noted by Engine::kCohort only, and on accelerators they are the host's;
///   - comm_hook is PyTorch's name of a built-in hook, and "custom" for any other, since functions have no names here;
///   - with one rank nothing is reduced, and so reductions take no time.
/// Noted are steps 1 to 10, and then each whose number is divisible by the sample rate (100 unless set).
///
/// The report is for people: where the time of a mean step went, and that of each bucket. COHORT_DDP_REPORT=1 prints it to
/// standard error when a wrapped module is destroyed.
#pragma once

#include <c10/util/Logging.h>

#include <string>
#include <vector>

namespace cohort::ddp {

class Replica;

class LoggingData {
 public:
  explicit LoggingData(const Replica& replica) : replica_(replica) {}

  c10::DDPLoggingData all() const;
  /// Ends with a newline.
  std::string report() const;

 private:
  void add_construction(c10::DDPLoggingData& data) const;
  void add_environment(c10::DDPLoggingData& data) const;
  void add_steps(c10::DDPLoggingData& data) const;
  std::string backend_name() const;
  std::string bucket_sizes(const std::vector<std::vector<size_t>>& buckets) const;

  const Replica& replica_;
};

}  // namespace cohort::ddp
