/// SystemSampler: the resources that this process and its host use, as named numbers (train/logging/system_metrics.h lists them).
///
/// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/report/records/run_record.h"
#include "cohort/report/system/nvml.h"
#include "cohort/report/system/proc_files.h"

namespace cohort::report {

struct SystemSamplerOptions {
  bool pss = true;
  bool gpu = true;
  /// Folders and clocks that tests replace.
  std::string proc = "/proc";
  std::string nvml_library = "libnvidia-ml.so.1";
  std::function<double()> seconds = {};
  std::function<double()> cpu_seconds = {};
};

/// Returns this process's memory that is in RAM; nothing if /proc does not say.
std::optional<uint64_t> resident_bytes();

class SystemSampler {
 public:
  explicit SystemSampler(SystemSamplerOptions options = {});
  NamedNumbers sample();
  /// Returns the fraction of this process's CPUs in use since the last call, or since the constructor.
  double cpu_share();

 private:
  /// Counters that only increase.
  struct Counters {
    double seconds = 0.0, cpu_seconds = 0.0;
    std::optional<CpuTicks> host;
    std::optional<uint64_t> disk_read, disk_written;
    std::optional<NetworkBytes> network;
  };
  Counters read_counters() const;
  void add_cpu(NamedNumbers& values, const Counters& now) const;
  void add_memory(NamedNumbers& values) const;
  void add_traffic(NamedNumbers& values, const Counters& now) const;
  void add_gpus(NamedNumbers& values) const;
  std::string proc_file(const char* name) const;

  SystemSamplerOptions options_;
  std::unique_ptr<Nvml> nvml_;
  Counters last_;
  double share_seconds_ = 0.0, share_cpu_seconds_ = 0.0;  ///< at the last call of cpu_share()
};

}  // namespace cohort::report
