/// Nvml: what NVIDIA's library says of the GPUs of this host. It is loaded when asked for, so that nothing needs it.
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
  /// Null where the library is not there or does not start.
  static std::unique_ptr<Nvml> load(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Of each GPU that answers.
  std::vector<GpuFigures> read() const;

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<Functions> functions);
  void* library_;
  std::unique_ptr<Functions> functions_;
};

}  // namespace cohort::report
