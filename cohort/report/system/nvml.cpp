#include "cohort/report/system/nvml.h"

#include <dlfcn.h>

#include <utility>

namespace cohort::report {
namespace {

constexpr int kNvmlSuccess = 0;

template <typename Function>
bool find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct Nvml::Functions {
  // The types of NVIDIA's nvml.h.
  using Device = void*;
  struct Utilization {
    unsigned int gpu;     // percent
    unsigned int memory;  // percent
  };
  struct Memory {
    unsigned long long total, free, used;
  };

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*get_count)(unsigned int*) = nullptr;
  int (*get_handle)(unsigned int, Device*) = nullptr;
  int (*get_utilization)(Device, Utilization*) = nullptr;
  int (*get_memory)(Device, Memory*) = nullptr;
  int (*get_power)(Device, unsigned int*) = nullptr;  // milliwatts

  bool find_in(void* library) {
    return find_function(library, "nvmlInit_v2", init) && find_function(library, "nvmlShutdown", shutdown) &&
           find_function(library, "nvmlDeviceGetCount_v2", get_count) &&
           find_function(library, "nvmlDeviceGetHandleByIndex_v2", get_handle) &&
           find_function(library, "nvmlDeviceGetUtilizationRates", get_utilization) &&
           find_function(library, "nvmlDeviceGetMemoryInfo", get_memory) &&
           find_function(library, "nvmlDeviceGetPowerUsage", get_power);
  }
};

std::unique_ptr<Nvml> Nvml::load(const std::string& library_name) {
  void* library = ::dlopen(library_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;
  auto functions = std::make_unique<Functions>();
  if (!functions->find_in(library) || functions->init() != kNvmlSuccess) {
    ::dlclose(library);
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(library, std::move(functions)));
}

Nvml::Nvml(void* library, std::unique_ptr<Functions> functions) : library_(library), functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
  ::dlclose(library_);
}

std::vector<GpuFigures> Nvml::read() const {
  std::vector<GpuFigures> all;
  unsigned int count = 0;
  if (functions_->get_count(&count) != kNvmlSuccess) return all;
  for (unsigned int i = 0; i < count; ++i) {
    Functions::Device device = nullptr;
    if (functions_->get_handle(i, &device) != kNvmlSuccess) continue;
    GpuFigures figures{.index = static_cast<int>(i)};
    Functions::Utilization utilization{};
    Functions::Memory memory{};
    unsigned int milliwatts = 0;
    if (functions_->get_utilization(device, &utilization) == kNvmlSuccess) figures.busy_share = utilization.gpu / 100.0;
    if (functions_->get_memory(device, &memory) == kNvmlSuccess) figures.memory_bytes = memory.used;
    if (functions_->get_power(device, &milliwatts) == kNvmlSuccess) figures.watts = milliwatts / 1000.0;
    all.push_back(figures);
  }
  return all;
}

}  // namespace cohort::report
