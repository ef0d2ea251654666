/// SystemMetrics: resource usage of this process and its host, as metrics for a logger.
///
///     cohort::train::SystemMetrics system;
///     log.log_metrics(step, system.sample());
///
/// Names (values that the system does not report are left out):
///   system/cpu_percent            of this process since the last sample; 100 is one CPU
///   system/host_cpu_percent       of all CPUs of the host; 100 is all of them
///   system/rss_gib, system/pss_gib   memory of this process; pss divides shared memory among its processes
///   system/host_free_gib          available memory of the host
///   system/disk_read_mb_per_s, system/disk_write_mb_per_s   of this process, at the disk
///   system/net_receive_mb_per_s, system/net_send_mb_per_s   of the host, without the loopback
///   system/gpu0_percent, system/gpu0_memory_gib, system/gpu0_watts   of each NVIDIA GPU, if NVML is installed
///
/// A sample takes well under a millisecond; with pss longer, as the kernel goes through the process's memory.
/// Thread-safety: one thread at a time.
#pragma once

#include <memory>

#include "cohort/export.h"
#include "cohort/train/progress.h"

namespace cohort::train {

struct SystemMetricsOptions {
  bool pss = true;
  bool gpu = true;
};

class COHORT_API SystemMetrics {
 public:
  explicit SystemMetrics(const SystemMetricsOptions& options = {});
  ~SystemMetrics();
  SystemMetrics(const SystemMetrics&) = delete;
  SystemMetrics& operator=(const SystemMetrics&) = delete;
  /// Returns the metrics. Rates cover the time since the last call, or since the constructor.
  Metrics sample();
  /// Returns the share, 0 to 1, that this process has used of the CPUs that it may use since the last call, or the constructor.
  double cpu_share();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::train
