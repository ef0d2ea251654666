#include "cohort/parallel/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include <string>

#include "cohort/base/log/log.h"
#include "cohort/comm/backend/accelerator.h"

namespace cohort {
namespace {

// Returns the type's name for users: "CPU".
std::string name_of_type(c10::DeviceType type) { return c10::DeviceTypeName(type); }

// Warns if not.
bool can_autocast(c10::DeviceType type, c10::ScalarType dtype) {
  const std::string name = name_of_type(type);
  if (type != at::kCPU && type != comm::accelerator_type()) {
    base::warn_once(name + " is not available. Disabling autocast.");
    return false;
  }
  if (dtype == at::kBFloat16 || dtype == at::kHalf) return true;
  base::warn_once("In " + name + " autocast, but the target dtype is not supported. Disabling autocast.\n" + name +
                  " Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.");
  return false;
}

}  // namespace

Autocast::State Autocast::state_of(c10::DeviceType device_type) {
  TORCH_CHECK(at::autocast::is_autocast_available(device_type), "User specified an unsupported autocast device_type '",
              c10::DeviceTypeName(device_type, /*lower_case=*/true), "'");
  return {at::autocast::is_autocast_enabled(device_type), at::autocast::get_autocast_dtype(device_type),
          at::autocast::is_autocast_cache_enabled()};
}

void Autocast::set(const State& state) const {
  at::autocast::set_autocast_enabled(device_type_, state.is_enabled);
  at::autocast::set_autocast_dtype(device_type_, state.dtype);
  at::autocast::set_autocast_cache_enabled(state.is_cache_enabled);
}

Autocast::Autocast(c10::DeviceType device_type, const AutocastOptions& options)
    : device_type_(device_type), found_(state_of(device_type)) {
  const auto dtype = options.dtype.value_or(found_.dtype);
  set({options.enabled && can_autocast(device_type, dtype), dtype,
       options.cache_enabled.value_or(found_.is_cache_enabled)});
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set(found_);
}

}  // namespace cohort
