/// LoggingData: the settings of DistributedDataParallel and the times of its steps.
///
/// Names and units are those of torch/csrc/distributed/c10d/logger.cpp, so a program that reads PyTorch's data can read these:
/// bytes, and nanoseconds (names that end in _start and _end: since the epoch). Python's _get_ddp_logging_data() returns one
/// dictionary; here there are two maps, strs_map and ints_map. Differences:
///   - a step counts when its backward ends; PyTorch counts it when the next forward begins;
///   - only Engine::kCohort notes times, and on accelerators they are the host's;
///   - comm_hook is PyTorch's name of a built-in hook, and "custom" for any other, since functions have no names here;
///   - with one rank nothing is reduced, so reductions take no time.
/// Steps 1 to 10 are noted, and then each step whose number is divisible by the sample rate (100 by default).
///
/// The report is for people: the times of an average step and of each bucket. COHORT_DDP_REPORT=1 prints it to standard error
/// when a wrapped module is destroyed.
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
  /// Returns the report, which ends with a newline.
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
