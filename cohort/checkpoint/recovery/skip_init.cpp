#include "cohort/checkpoint/recovery/skip_init.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <optional>

#include "cohort/base/env.h"

namespace cohort::checkpoint {
namespace {

/// LibTorch has no key for modes of others in C++. Only threads with a SkipInit ever come to it.
constexpr c10::DispatchKey kModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

at::Tensor& leave_normal(at::Tensor& self, double, double, std::optional<at::Generator>) { return self; }
at::Tensor& leave_uniform(at::Tensor& self, double, double, std::optional<at::Generator>) { return self; }

// At the first use: programs that need it not keep the key free.
void register_kernels() {
  static torch::Library others(torch::Library::IMPL, "_", kModeKey, __FILE__, __LINE__);
  static torch::Library ours(torch::Library::IMPL, "aten", kModeKey, __FILE__, __LINE__);
  [[maybe_unused]] static const bool registered = [] {
    others.fallback(torch::CppFunction::makeFallthrough());
    ours.impl("normal_", leave_normal);
    ours.impl("uniform_", leave_uniform);
    return true;
  }();
}

}  // namespace

struct SkipInit::Guard {
  c10::impl::IncludeDispatchKeyGuard included{kModeKey};
};

SkipInit::SkipInit()
    : guard_([] {
        register_kernels();
        return std::make_unique<Guard>();
      }()) {}
SkipInit::~SkipInit() = default;

bool is_restart() {
  const auto count = base::env_int("TORCHELASTIC_RESTART_COUNT");
  return count && count->value_or(0) > 0;
}

}  // namespace cohort::checkpoint
