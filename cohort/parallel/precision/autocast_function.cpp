#include "cohort/parallel/precision/autocast_function.h"

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

namespace cohort {
namespace {

constexpr const char* kDtypeKey = "_dtype";
constexpr const char* kUsedKey = "_fwd_used_autocast";

}  // namespace

CustomForward::CustomForward(torch::autograd::AutogradContext* context, c10::DeviceType device_type,
                             std::optional<c10::ScalarType> cast_inputs) {
  const bool is_enabled = at::autocast::is_autocast_enabled(device_type);
  context->saved_data[kDtypeKey] = static_cast<int64_t>(at::autocast::get_autocast_dtype(device_type));
  context->saved_data[kUsedKey] = is_enabled && !cast_inputs;
  if (!is_enabled || !cast_inputs) return;
  target_ = Target{device_type, *cast_inputs};
  without_.emplace(device_type, AutocastOptions{.enabled = false});
}

Autocast custom_bwd(torch::autograd::AutogradContext* ctx, c10::DeviceType device_type) {
  const auto dtype = ctx->saved_data.find(kDtypeKey), is_used = ctx->saved_data.find(kUsedKey);
  TORCH_CHECK(dtype != ctx->saved_data.end() && is_used != ctx->saved_data.end(),
              "[cohort] custom_bwd: this function's forward has not called custom_fwd, so it is unknown whether it ran "
              "under autocast\n  hint: call cohort::custom_fwd(ctx, ...) first in forward");
  return Autocast(device_type,
                  {.dtype = static_cast<c10::ScalarType>(dtype->second.toInt()), .enabled = is_used->second.toBool()});
}

}  // namespace cohort
