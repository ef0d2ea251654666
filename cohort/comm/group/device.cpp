#include "cohort/comm/group/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <limits>
#include <string>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/rendezvous/environment/launch_environment.h"

namespace cohort {
namespace {

constexpr int kNone = -1;

// The last choice of any thread. Relaxed, because no other data depends on it.
std::atomic<int> last_choice{kNone};
thread_local bool thread_has_chosen = false;

std::string type_name(c10::DeviceType type) { return c10::DeviceTypeName(type, /*lower_case=*/true); }

c10::Device device_at(c10::DeviceType type, int index) { return {type, static_cast<c10::DeviceIndex>(index)}; }

int default_index(int count) {
  const int chosen = last_choice.load(std::memory_order_relaxed);
  if (chosen != kNone) return chosen;
  const auto local_rank = comm::or_throw_value(base::env_int("LOCAL_RANK", 0, std::numeric_limits<int>::max()));
  if (local_rank) return static_cast<int>(*local_rank % count);
  return static_cast<int>(base::parse_int(rendezvous::LaunchEnvironment().get("LOCAL_RANK").value_or("0")).value_or(0) %
                          count);
}

}  // namespace

void set_device(int index) {
  TORCH_CHECK_VALUE(index >= 0, "[cohort] Invalid device index ", index, ": it must not be negative");
  const auto accelerator = comm::accelerator();
  if (!accelerator) return;
  const auto& [type, count] = *accelerator;
  TORCH_CHECK_VALUE(index < count, "[cohort] Invalid device index ", index, ": this process sees ", count, " ",
                    type_name(type), count == 1 ? " device" : " devices",
                    ", numbered from 0\n  hint: with NVIDIA GPUs check CUDA_VISIBLE_DEVICES");
  c10::impl::VirtualGuardImpl(type).setDevice(device_at(type, index));
  thread_has_chosen = true;
  last_choice.store(index, std::memory_order_relaxed);
}

void set_device(c10::Device device) {
  if (device.is_cpu()) return;
  const auto type = comm::accelerator_type();
  TORCH_CHECK_VALUE(
      type, "[cohort] Invalid device ", device.str(),
      ": this process sees no accelerator\n  hint: with NVIDIA GPUs check nvidia-smi, CUDA_VISIBLE_DEVICES "
      "and that LibTorch is a CUDA build");
  TORCH_CHECK_VALUE(device.type() == *type, "[cohort] Invalid device ", device.str(), ": it must be cpu or ",
                    type_name(*type), ", the accelerator of this process");
  if (device.has_index()) set_device(static_cast<int>(device.index()));
}

c10::Device current_device() {
  const auto accelerator = comm::accelerator();
  if (!accelerator) return c10::DeviceType::CPU;
  const c10::impl::VirtualGuardImpl guard(accelerator->type);
  const auto current = guard.getDevice();
  // Every thread begins with number 0, so only another number shows a choice.
  if (thread_has_chosen || current.index() != 0) return current;
  const auto wanted = device_at(accelerator->type, default_index(accelerator->num_devices));
  if (wanted != current) guard.setDevice(wanted);
  thread_has_chosen = true;
  return wanted;
}

}  // namespace cohort
