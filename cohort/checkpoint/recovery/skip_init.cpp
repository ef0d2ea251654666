#include "cohort/checkpoint/recovery/skip_init.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "cohort/base/system/env.h"
#include "cohort/comm/overrides/override.h"

namespace cohort::checkpoint {
namespace {

/// LibTorch has no key for other libraries' modes in C++. Only threads with a SkipInit use this one.
constexpr c10::DispatchKey kModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// By value, because LibTorch compares the types of an operator's kernels. NOLINTBEGIN(performance-unnecessary-value-param)
at::Tensor& leave_normal(at::Tensor& self, double, double, std::optional<at::Generator>) { return self; }
at::Tensor& leave_uniform(at::Tensor& self, double, double, std::optional<at::Generator>) { return self; }
// NOLINTEND(performance-unnecessary-value-param)

// Called at the first use, so that programs without a SkipInit leave the key free.
void register_kernels() {
  [[maybe_unused]] static const bool is_ours = [] {
    comm::take_key("SkipInit", kModeKey);
    comm::override_others(kModeKey, torch::CppFunction::makeFallthrough());
    return true;
  }();
  comm::override_kernel("SkipInit", "aten::normal_", kModeKey, torch::CppFunction(leave_normal));
  comm::override_kernel("SkipInit", "aten::uniform_", kModeKey, torch::CppFunction(leave_uniform));
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
