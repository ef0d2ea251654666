// What NVIDIA's libnvidia-ml.so.1 offers, with two GPUs, of which the second tells less.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {
constexpr int kSuccess = 0, kNotSupported = 3, kUnknown = 999;
int initialized = 0;
uintptr_t index_of(void* device) { return reinterpret_cast<uintptr_t>(device) - 1; }
}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the library's names.
FAKE int nvmlInit_v2() {
  if (std::getenv("FAKE_NVML_FAILS")) return kUnknown;
  ++initialized;
  return kSuccess;
}
FAKE int nvmlShutdown() {
  --initialized;
  return kSuccess;
}
FAKE int nvmlDeviceGetCount_v2(unsigned int* count) {
  if (initialized != 1) return kUnknown;
  *count = 2;
  return kSuccess;
}
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = reinterpret_cast<void*>(uintptr_t{index} + 1);
  return kSuccess;
}
FAKE int nvmlDeviceGetUtilizationRates(void* device, unsigned int* rates) {
  if (index_of(device) == 1) return kNotSupported;
  rates[0] = 75;
  rates[1] = 10;
  return kSuccess;
}
FAKE int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = 80ULL << 30;
  memory[1] = 78ULL << 30;
  memory[2] = (index_of(device) + 1) << 30;
  return kSuccess;
}
FAKE int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
  if (index_of(device) == 1) return kNotSupported;
  *milliwatts = 250500;
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
