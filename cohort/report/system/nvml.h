/// Nvml: figures of this host's GPUs from NVIDIA's library, which is loaded at run time, so that nothing depends on it.
///
/// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cohort::report {

struct GpuFigures {
  int index = 0;
  std::optional<double> busy_share = {};
  std::optional<uint64_t> memory_bytes = {};
  std::optional<double> watts = {};
};

class Nvml {
 public:
  /// Returns null if the library does not exist or does not start.
  static std::unique_ptr<Nvml> load(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Returns the figures of each GPU that answers.
  std::vector<GpuFigures> read() const;

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<Functions> functions);
  void* library_;
  std::unique_ptr<Functions> functions_;
};

}  // namespace cohort::report
